"""Parsers from the text of a variable or flag, or from a TOML value, to a setting's type, and the declaration of a setting.
Pure except for the user's home and current folder in a path. Each parser raises `ValueError` with the reason alone; the
setting has the remedy."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from switchtower.settings.sources import ConfigError
from switchtower.settings.sources import locate as locate

SOCKET_PATH_LIMIT = 107 if sys.platform == "linux" else 103
"""The longest path, in bytes, that a Unix socket can have."""

_SPELLED = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class ListenAddress(NamedTuple):
    """An address to listen on. Port 0 picks a free one."""

    host: str
    port: int


def parse_address(text: str) -> ListenAddress | None:
    """Splits `HOST:PORT` into its parts (`[::1]:8787` for IPv6); None when it is `off`."""
    if text == "off":
        return None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and _is_port(port)):
        raise ValueError(f"`{text}` is not HOST:PORT")
    return ListenAddress(host, int(port))


def parse_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"`{value}` is not text")
    return value


def parse_path(value: object) -> Path:
    try:
        return Path(value if isinstance(value, Path) else parse_text(value)).expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"`{value}` names a user that does not exist") from None


def parse_socket_path(value: object) -> Path:
    place = parse_path(value)
    if not is_valid_socket_path(place):
        raise ValueError(f"`{place}` is longer than the {SOCKET_PATH_LIMIT} bytes that a Unix socket's path may have")
    return place


def is_valid_socket_path(place: Path) -> bool:
    return len(os.fsencode(place)) <= SOCKET_PATH_LIMIT


def parse_listen(value: object) -> str:
    spelled = parse_text(value)
    parse_address(spelled)
    return spelled


def parse_loopback_port(value: object) -> str:
    """Parses a port alone, on the loopback address."""
    port = str(value).strip()
    if not _is_port(port):
        raise ValueError(f"`{value}` is not a port")
    return f"127.0.0.1:{port}"


def _is_port(port: str) -> bool:
    return port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65_536


def parse_switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in _SPELLED:
        raise ValueError(f"`{value}` is neither true nor false")
    return _SPELLED[value.lower()]


class OneOfParser:
    """Parses one of a few words, in any case."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, value: object) -> str:
        word = parse_text(value).lower()
        if word not in self.choices:
            raise ValueError(f"`{value}` is not known")
        return word


class SomeOfParser:
    """Parses some of a few words, in any case: a list in the file, or words with commas between them."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, value: object) -> tuple[str, ...]:
        words = tuple(word.lower() for word in parse_names(value))
        for word in words:
            if word not in self.choices:
                raise ValueError(f"`{word}` is not known")
        return words


def parse_url(value: object) -> str:
    """Parses a web address with a host, and without a user or a fragment."""
    spelled = parse_text(value)
    scheme, separator, rest = spelled.partition("://")
    host = re.split(r"[/?]", rest, maxsplit=1)[0]
    is_clean = spelled.isprintable() and not any(mark in spelled for mark in " #@")
    if not separator or scheme not in ("http", "https") or not host or not is_clean:
        raise ValueError("this is not a web address")  # the message leaves out the value, which may contain a secret
    return spelled


def parse_urls(value: object) -> tuple[str, ...]:
    return tuple(parse_url(each) for each in parse_names(value))


def parse_public_url(value: object) -> str:
    """Parses the address of a site: a web address without a path."""
    spelled = parse_url(value).rstrip("/")
    if any(mark in spelled.partition("://")[2] for mark in "/?"):
        raise ValueError(f"`{value}` has a path")
    return spelled


def parse_hub_url(value: object) -> str:
    """Parses the address of a hub, as a web address without a path."""
    spelled = parse_text(value).rstrip("/")
    scheme, separator, rest = spelled.partition("://")
    scheme = {"ws": "http", "wss": "https"}.get(scheme, scheme)
    if not separator or scheme not in ("http", "https") or not rest or any(mark in rest for mark in " /?#@"):
        raise ValueError(f"`{value}` is not a hub's address")
    return f"{scheme}://{rest}"


def parse_regex(value: object) -> str:
    spelled = parse_text(value)
    try:
        re.compile(spelled)
    except re.error as problem:
        raise ValueError(f"`{value}` is not a regular expression: {problem}") from None
    return spelled


def parse_names(value: object) -> tuple[str, ...]:
    """Parses a list in the file, or names with commas between them."""
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"`{value}` is not a list of names")
    return tuple(value)


def parse_origins(value: object) -> tuple[str, ...]:
    """Parses names of hosts, and origins of pages in the notation of browsers: `scheme://host[:port]`."""
    entries = parse_names(value)
    for entry in entries:
        _, separator, rest = entry.partition("://")
        if separator and (not rest or any(mark in rest for mark in " /?#@")):
            raise ValueError(f"`{entry}` is not an origin; write `https://app.example`, without a path")
    return entries


def parse_networks(value: object) -> tuple[str, ...]:
    """Parses addresses, or networks such as `10.0.0.0/8`."""
    import ipaddress

    spelled = parse_names(value)
    for network in spelled:
        try:
            ipaddress.ip_network(network)
        except ValueError as problem:
            raise ValueError(str(problem)) from None
    return spelled


def make_integer_parser(least: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        try:
            number = int(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        if not isinstance(number, int) or isinstance(number, bool):
            raise ValueError(f"`{value}` is not a whole number")
        if number < least:
            raise ValueError(f"`{value}` is less than {least}")
        return number

    return parse


def make_number_parser(least: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        try:
            parsed = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
        except (ValueError, OverflowError):
            parsed = None
        if parsed is None or parsed != parsed:  # the second half refuses NaN
            raise ValueError(f"`{value}` is not a number")
        if not least <= parsed <= 1e12:
            raise ValueError(f"`{value}` is not between {least:g} and 1e12")
        return parsed

    return parse


def parse_listen_address(value: object) -> str:
    """Like `parse_listen`, for an address that cannot be `off`."""
    spelled = parse_text(value)
    if parse_address(spelled) is None:
        raise ValueError("it cannot be off")
    return spelled


def parse_store_url(value: object) -> str:
    """Parses the address of a PostgreSQL server. The database checks everything beyond its scheme, and it may contain a
    password.
    """
    spelled = parse_text(value)
    if not spelled.startswith(("postgresql://", "postgres://")):
        raise ValueError("it is not the address of a PostgreSQL")
    return spelled


class Setting(NamedTuple):
    """One row of the table that the flags, the variables and the documentation are generated from."""

    name: str
    parse: Callable[[object], Any]
    default: Any
    metavar: str
    help: str
    variables: tuple[str, ...]
    """The first variable that is set wins."""
    spellings: Mapping[str, Callable[[object], Any]]
    """Variables of other programs, with parsers for their own notation."""
    in_file: bool

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def is_switch(self) -> bool:
        return self.parse is parse_switch

    @property
    def remedy(self) -> str:
        """The text that explains what to write instead of a refused value."""
        if isinstance(self.parse, OneOfParser):
            return f"use one of {', '.join(self.parse.choices)}"
        if isinstance(self.parse, SomeOfParser):
            return f"use some of {', '.join(self.parse.choices)}"
        if self.name == "socket":
            return f"set `{self.variables[0]}` to a path of at most {SOCKET_PATH_LIMIT} bytes"
        if self.name == "store":
            return "give one, such as `postgresql://tower@db.example/tower`, or none for SQLite"
        if self.is_switch:
            return "use `true` or `false`"
        example = f", such as `{self.default}`" if self.default is not None else ""
        return f"give {self.metavar}{example}"


Spellings = Mapping[str, Callable[[object], Any] | None]
_NO_OTHERS: Spellings = MappingProxyType({})


def declare_setting(
    default: Any,
    parse: Callable[[object], Any],
    metavar: str,
    help: str,
    *,
    also: Spellings = _NO_OTHERS,
    in_file: bool = True,
) -> Any:
    """`also` has other programs' variables, each with a parser where its notation differs from ours."""
    return field(default=default, metadata={"parse": parse, "metavar": metavar, "help": help, "also": also, "in_file": in_file})


def format_setting_value(value: object) -> str:
    """Formats a value as a variable or a flag would have it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def find_value(
    setting: Setting, flags: Mapping[str, object], environ: Mapping[str, str], in_file: Mapping[str, object], file: str
) -> Any:
    if (flag := flags.get(setting.name)) is not None:
        return _parse_value(setting, flag, f"the flag `{setting.flag}`")
    for variable in setting.variables:
        if text := environ.get(variable):
            return _parse_value(setting, text, f"the variable `{variable}`", setting.spellings.get(variable))
    if setting.name in in_file:
        return _parse_value(setting, in_file[setting.name], file)
    return None


def is_inherited(setting: Setting, value: object, flags: Mapping[str, object], environ: Mapping[str, str]) -> bool:
    """A command that starts the daemon passes it every setting in its own variable, including defaults, which the user did not
    choose.
    """
    return value == setting.default and flags.get(setting.name) is None and bool(environ.get(setting.variables[0]))


def _parse_value(setting: Setting, value: object, source: str, spelling: Callable[[object], Any] | None = None) -> Any:
    try:
        return (spelling or setting.parse)(value)
    except ValueError as problem:
        hint = setting.remedy if spelling is None else "give a number below 65536"
        raise ConfigError(setting.name, source, str(problem), hint=hint) from None
