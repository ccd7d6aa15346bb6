"""Every setting, declared once: its key in the configuration file, its `TOWER_*` variable, its flag and its default.

Reads the environment and one file; creates nothing and opens no socket. A flag wins over the environment, the environment
over the file, the file over the default.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

SOCKET_PATH_LIMIT = 107 if sys.platform == "linux" else 103
"""The longest path, in bytes, that a Unix socket can have."""

LOG_LEVELS = ("debug", "info", "warning", "error")
POLICIES = ("read-only", "ask", "auto", "yolo")
SANDBOXES = ("local", "bubblewrap", "modal")
TABLES = ("models", "rules")
"""Parts of the file that are no single values: `[models.NAME]` and `[[rules]]`. The rooms that use them read them."""


class ConfigError(Exception):
    """A setting that cannot be used: which, where it came from, and what to do."""

    def __init__(self, setting: str, source: str, problem: str, *, hint: str) -> None:
        super().__init__(setting, source, problem)
        self.setting = setting
        self.source = source
        self.problem = problem
        self.hint = hint

    @property
    def message(self) -> str:
        return f"`{self.setting}` from {self.source}: {self.problem}"

    def __str__(self) -> str:
        return f"{self.message}; hint: {self.hint}"


class Address(NamedTuple):
    """Where to listen. Port 0 picks a free one."""

    host: str
    port: int


class Folders(NamedTuple):
    """Where things are kept."""

    config: Path
    data: Path
    run: Path
    logs: Path


def address(text: str) -> Address | None:
    """`HOST:PORT` in its parts (`[::1]:8787` for IPv6); None when it is `off`."""
    if text == "off":
        return None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65_536):
        raise ValueError(f"`{text}` is not HOST:PORT")
    return Address(host, int(port))


# Parsers: the text of a variable or flag, or a TOML value, to the setting's own type. They raise ValueError with the reason.


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"`{value}` is not text")
    return value


def _path(value: object) -> Path:
    try:
        return Path(value if isinstance(value, Path) else _text(value)).expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"`{value}` names a user that does not exist") from None


def _socket_path(value: object) -> Path:
    path = _path(value)
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise ValueError(f"`{path}` is longer than the {SOCKET_PATH_LIMIT} bytes that a Unix socket's path may have")
    return path


def _listen(value: object) -> str:
    text = _text(value)
    address(text)
    return text


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    spelled = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if not isinstance(value, str) or value.lower() not in spelled:
        raise ValueError(f"`{value}` is neither true nor false")
    return spelled[value.lower()]


def _one_of(*choices: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        text = _text(value).lower()
        if text not in choices:
            raise ValueError(f"`{value}` is not one of {', '.join(choices)}")
        return text

    return parse


_log_level = _one_of(*LOG_LEVELS)


def _names(value: object) -> tuple[str, ...]:
    """A list in the file, or names with commas between them."""
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"`{value}` is not a list of names")
    return tuple(value)


def _whole(least: int) -> Callable[[object], int]:
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


def _number(least: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        try:
            number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
        except (ValueError, OverflowError):
            number = None
        if number is None or number != number:  # the second half refuses NaN
            raise ValueError(f"`{value}` is not a number")
        if not least <= number <= 1e12:
            raise ValueError(f"`{value}` is not between {least:g} and 1e12")
        return number

    return parse


class Setting(NamedTuple):
    """One row of the table that the flags, the variables and the documentation are made from."""

    name: str
    parse: Callable[[object], Any]
    default: Any
    metavar: str
    help: str
    variables: tuple[str, ...]
    """The first one set wins."""
    in_file: bool

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def is_switch(self) -> bool:
        return self.parse is _switch


def _setting(
    default: Any, parse: Callable[[object], Any], metavar: str, help: str, *, also: tuple[str, ...] = (), in_file: bool = True
) -> Any:
    return field(default=default, metadata={"parse": parse, "metavar": metavar, "help": help, "also": also, "in_file": in_file})


_DERIVED = Path()
"""Stands for a path that follows from the folders."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    home: Path | None = _setting(  # noqa: RUF009
        None, _path, "DIR", "Keep everything (configuration, data, socket, log) in this one folder", in_file=False
    )
    socket: Path = _setting(_DERIVED, _socket_path, "PATH", "The Unix socket of the push protocol", also=("PUSHD_SOCKET",))  # noqa: RUF009
    http: str = _setting("127.0.0.1:8787", _listen, "HOST:PORT", "HTTP and WebSockets; port 0 picks a free one, `off` disables")
    pi: str = _setting("127.0.0.1:3141", _listen, "HOST:PORT", "The pi protocol's own port; reserved, nothing listens there yet")
    max_line_bytes: int = _setting(1_048_576, _whole(1024), "BYTES", "The longest frame a client may send")
    output_limit_bytes: int = _setting(
        1_048_576, _whole(1024), "BYTES", "How much output may wait for one connection before it is paged from the journal"
    )
    retention_entries: int = _setting(100_000, _whole(0), "COUNT", "How many of a session's token deltas are kept; 0 keeps all")
    retention_days: float = _setting(30.0, _number(0), "DAYS", "How long token deltas are kept; 0 keeps them for ever")
    receipt_ttl_hours: float = _setting(
        168.0, _number(0.001), "HOURS", "How long a repeated request is recognised and answered as the first time"
    )
    approval_timeout: float = _setting(86_400.0, _number(0.001), "SECONDS", "How long an approval waits before it expires")
    attach_token_required: bool = _setting(False, _switch, "", "Ask for a session's attach token on the owner's socket too")
    demo_delay_ms: float = _setting(15.0, _number(0), "MS", "The demo model's pause between words")
    provider: str = _setting(
        "auto", _text, "NAME", "The model or provider of sessions that name none; `auto` takes the first usable one, or the demo"
    )
    model: str | None = _setting(None, _text, "NAME", "The provider's model for sessions that name none")
    policy: str = _setting("ask", _one_of(*POLICIES), "PROFILE", f"What sessions may do unasked: {', '.join(POLICIES)}")
    sandbox: str = _setting("local", _one_of(*SANDBOXES), "NAME", f"Where commands run: {', '.join(SANDBOXES)}")
    sandbox_network: bool = _setting(False, _switch, "", "Let commands in a sandbox use the network")
    pass_env: tuple[str, ...] = _setting(
        (), _names, "NAMES", "Variables that commands may see although their names look like secrets, with commas between"
    )
    max_turns: int = _setting(200, _whole(0), "COUNT", "How often one run may call the model; 0 is no limit")
    max_tokens: int = _setting(0, _whole(0), "COUNT", "How many tokens one run may take, in and out; 0 is no limit")
    max_cost: float = _setting(0.0, _number(0), "USD", "How much one run may cost, where prices are known; 0 is no limit")
    max_minutes: float = _setting(0.0, _number(0), "MINUTES", "How long one run may call the model; 0 is no limit")
    compact_at: float = _setting(
        0.8, _number(0), "PART", "The part of the context window from which on a conversation is summarised; 0 never does"
    )
    log_level: str = _setting("info", _log_level, "LEVEL", f"How much is logged: {', '.join(LOG_LEVELS)}")
    shutdown_timeout: float = _setting(5.0, _number(0), "SECONDS", "How long running work may take to end when the daemon stops")
    models: Mapping[str, object] = field(default_factory=dict, repr=False)
    """The file's `[models.NAME]` tables, unread."""
    rules: Sequence[object] = field(default=(), repr=False)
    """The file's `[[rules]]`, unread."""
    folders: Folders = field(default=Folders(_DERIVED, _DERIVED, _DERIVED, _DERIVED), repr=False)
    """Where things are kept. Follows from `home`, or from the user's XDG folders without one; not a setting itself."""

    def __post_init__(self) -> None:
        if self.folders.run == _DERIVED:
            object.__setattr__(self, "folders", locate(self.home, os.environ))
        if self.socket == _DERIVED:
            object.__setattr__(self, "socket", self.default_socket)

    @property
    def default_socket(self) -> Path:
        return self.run_dir / "pushd.sock"

    @property
    def config_file(self) -> Path:
        return self.folders.config / "config.toml"

    @property
    def mcp_file(self) -> Path:
        """The user's own MCP servers."""
        return self.folders.config / "mcp.json"

    @property
    def checkpoints_dir(self) -> Path:
        return self.data_dir / "checkpoints"

    @property
    def worktrees_dir(self) -> Path:
        return self.data_dir / "worktrees"

    @property
    def data_dir(self) -> Path:
        return self.folders.data

    @property
    def journal_path(self) -> Path:
        return self.data_dir / "journal.db"

    @property
    def run_dir(self) -> Path:
        return self.folders.run

    @property
    def endpoints_path(self) -> Path:
        return self.run_dir / "endpoints.json"

    @property
    def pid_path(self) -> Path:
        return self.run_dir / "pushd.pid"

    @property
    def lock_path(self) -> Path:
        return self.run_dir / "tower.lock"

    @property
    def log_path(self) -> Path:
        return self.folders.logs / "tower.log"


SETTINGS: tuple[Setting, ...] = tuple(
    Setting(
        name=declared.name,
        parse=declared.metadata["parse"],
        default=None if declared.default == _DERIVED else declared.default,
        metavar=declared.metadata["metavar"],
        help=declared.metadata["help"],
        variables=("TOWER_" + declared.name.upper(), *declared.metadata["also"]),
        in_file=declared.metadata["in_file"],
    )
    for declared in fields(Settings)
    if declared.metadata
)


def locate(home: Path | None, environ: Mapping[str, str]) -> Folders:
    """The folders of one home; without one, the user's XDG folders and push's own run folder."""
    if home is not None:
        return Folders(config=home, data=home / "data", run=home / "run", logs=home / "logs")
    user = Path(environ.get("HOME") or Path.home())

    def xdg(variable: str, default: str) -> Path:
        named = environ.get(variable, "")
        # The XDG specification: a relative path is invalid and must be ignored.
        return (Path(named) if named.startswith("/") else user / default) / "switchtower"

    return Folders(
        config=xdg("XDG_CONFIG_HOME", ".config"),
        data=xdg("XDG_DATA_HOME", ".local/share"),
        run=user / ".push" / "run",
        logs=xdg("XDG_STATE_HOME", ".local/state"),
    )


def load(flags: Mapping[str, object] = MappingProxyType({}), environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings in force. A flag that is None, or a variable that is empty, counts as not given."""
    home = _given(SETTINGS[0], flags, environ, {}, "")
    folders = locate(home, environ)
    config_file = folders.config / "config.toml"
    in_file = _read(config_file)
    values = {setting.name: _given(setting, flags, environ, in_file, f"`{config_file}`") for setting in SETTINGS[1:]}
    given = {name: value for name, value in values.items() if value is not None}
    if "socket" not in given:
        given["socket"] = _parsed(_BY_NAME["socket"], folders.run / "pushd.sock", f"the default in `{folders.run}`")
    for table, kind in (("models", dict), ("rules", list)):
        if table in in_file:
            if not isinstance(in_file[table], kind):
                spelled = "[models.NAME]" if table == "models" else "[[rules]]"
                raise ConfigError(table, f"`{config_file}`", "is a single value", hint=f"write it as `{spelled}`")
            given[table] = in_file[table]
    return Settings(home=home, folders=folders, **given)


_BY_NAME = {setting.name: setting for setting in SETTINGS}
assert SETTINGS[0].name == "home", "the home decides where the file is, so it is known before the rest"


def _given(
    setting: Setting, flags: Mapping[str, object], environ: Mapping[str, str], in_file: Mapping[str, object], file: str
) -> Any:
    if (flag := flags.get(setting.name)) is not None:
        return _parsed(setting, flag, f"the flag `{setting.flag}`")
    for variable in setting.variables:
        if text := environ.get(variable):
            return _parsed(setting, text, f"the variable `{variable}`")
    if setting.name in in_file:
        return _parsed(setting, in_file[setting.name], file)
    return None


def _parsed(setting: Setting, value: object, source: str) -> Any:
    try:
        return setting.parse(value)
    except ValueError as problem:
        raise ConfigError(setting.name, source, str(problem), hint=_remedy(setting)) from None


_CHOICES = {"log_level": LOG_LEVELS, "policy": POLICIES, "sandbox": SANDBOXES}


def _remedy(setting: Setting) -> str:
    if setting.name == "socket":
        return f"set `{setting.variables[0]}` to a path of at most {SOCKET_PATH_LIMIT} bytes"
    if setting.name in _CHOICES:
        return f"use one of {', '.join(_CHOICES[setting.name])}"
    if setting.is_switch:
        return "use `true` or `false`"
    example = f", such as `{setting.default}`" if setting.default is not None else ""
    return f"give {setting.metavar}{example}"


def _read(config_file: Path) -> dict[str, object]:
    try:
        content = config_file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as problem:
        raise ConfigError(
            "config.toml", f"`{config_file}`", problem.strerror or "cannot be read", hint="make the file readable or remove it"
        ) from None

    import tomllib

    try:
        in_file: dict[str, object] = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError("config.toml", f"`{config_file}`", f"not valid TOML: {problem}", hint="correct that line") from None

    known = [setting.name for setting in SETTINGS if setting.in_file]
    for key in in_file:
        if key not in known and key not in TABLES:
            raise ConfigError(key, f"`{config_file}`", "no setting has this name", hint=_suggestion(key, known))
    return in_file


def _suggestion(key: str, known: list[str]) -> str:
    if key == "home":
        return "set `TOWER_HOME`: the file is found through it"

    from difflib import get_close_matches

    if near := get_close_matches(key.replace("-", "_").lower(), known, n=1):
        return f"did you mean `{near[0]}`?"
    return f"remove it; the settings are {', '.join(known)}"
