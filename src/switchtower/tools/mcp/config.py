"""One MCP server as it was configured: what will be started or connected to, what people are shown of it, and the text that
an approval of it is bound to. Starts nothing.

People see a server as its file spells it, with `${VAR}` unfilled and secrets hidden. The approval is bound to a digest of
what those words come to, so it does not hold for anything else.
"""

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from switchtower.core import redact
from switchtower.core.redact import names, questions
from switchtower.tools.mcp import expand

LONGEST_NAME = 64
_MOST_PARTS = 256
"""Arguments, variables or headers of one server."""
_HTTP = frozenset({"http", "streamable-http", "streamable_http", "streamablehttp"})


class Invalid(ValueError):
    """An entry that cannot be used."""


class Entry(Struct, frozen=True):
    """A server as the file spells it. Other clients' further fields are none of our business."""

    type: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    disabled: bool = False


class Program(Struct, frozen=True):
    """A server that we start and talk to over its standard streams."""

    argv: tuple[str, ...]
    env: dict[str, str]
    """What it gets beyond the environment that every server has."""
    cwd: str

    def __repr__(self) -> str:
        return "Program(…)"  # arguments and variables may hold secrets


class Endpoint(Struct, frozen=True):
    """A server that runs elsewhere and is reached over streamable HTTP."""

    url: str
    headers: dict[str, str]

    def __repr__(self) -> str:
        return "Endpoint(…)"


class ServerConfig(Struct, frozen=True):
    name: str
    trusted: bool
    """From the user's own file. A workspace's file comes with whatever was cloned, and is asked about."""
    target: Program | Endpoint
    shown: dict[str, Any]
    """For people to judge by."""
    secrets: tuple[str, ...] = ()
    """Values that must not turn up in a message."""

    def __repr__(self) -> str:
        return f"ServerConfig({self.name!r}, trusted={self.trusted})"

    @property
    def subject(self) -> str:
        """What an approval is bound to: the words that people see, and a digest of exactly what they come to."""
        exact: list[Any]
        match self.target:
            case Program(argv, env, cwd):
                exact = [self.name, "start", argv, sorted(env.items()), cwd]
            case Endpoint(url, headers):
                exact = [self.name, "connect", url, sorted(headers.items())]
        digest = hashlib.sha256(json.dumps(exact).encode()).hexdigest()
        return json.dumps({"shown": self.shown, "sha256": digest}, sort_keys=True)


def configure(
    name: str, entry: Entry, *, trusted: bool, file: str, workspace: str, variables: Mapping[str, str]
) -> ServerConfig | None:
    """From an entry to a server; `None` when it is switched off. Raises `Invalid` or `expand.CannotExpand`."""
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise Invalid(f"a name has 1 to {LONGEST_NAME} printable characters")
    if entry.disabled:
        return None
    if max(len(entry.args), len(entry.env), len(entry.headers)) > _MOST_PARTS:
        raise Invalid(f"it has more than {_MOST_PARTS} arguments, variables or headers")
    shown: dict[str, Any] = {"server": name, "file": file}
    target: Program | Endpoint
    if _is_http(entry):
        target = _endpoint(entry, variables)
        shown |= {"url": _shown_url(entry.url or ""), "headers": _shown_headers(entry.headers)}
    else:
        target = _program(entry, workspace, variables)
        shown |= {
            "command": _shown_command((entry.command or "", *entry.args)),
            "folder": entry.cwd or workspace,
            "env": redact.Redactor().question_value(entry.env),
        }
    secrets = {*_own_secrets(target), *_referred_secrets(entry, variables)}
    return ServerConfig(name, trusted, target, shown, tuple(sorted(secrets - {""})))


def spelled_out_secret(entry: Entry, redactor: redact.Redactor) -> str | None:
    """The part of an entry that holds a secret itself, where a `${VAR}` should stand; None when there is none."""
    for variable, value in entry.env.items():
        named = names.kind_of(variable) is not None and redactor.value({variable: value})[variable] != value
        if redactor.text(value) != value or (named and not names.is_reference(value)):
            return f"env.{variable}"
    for header, value in entry.headers.items():
        # As where they are shown: what names no variable is taken for a secret.
        if redactor.text(value) != value or not expand.names_in(value):
            return f"headers.{header}"
    argv = (entry.command or "", *entry.args)
    hidden = {index for index in _behind_flags(argv) if not names.is_reference(argv[index])}
    if hidden or any(redactor.text(part) != part for part in argv):
        return "args"
    shown = redactor.text(_shown_url(entry.url or ""))
    return "url" if shown != (entry.url or "") else None


def _is_http(entry: Entry) -> bool:
    kind = entry.type.lower() if entry.type else ("http" if entry.url is not None and entry.command is None else "stdio")
    if kind == "sse":
        raise Invalid('the `sse` transport is not supported; hint: use the server\'s streamable HTTP address, `"type": "http"`')
    if kind not in _HTTP and kind != "stdio":
        raise Invalid('its `type` is not known; hint: use `"stdio"` or `"http"`')
    if entry.command is not None and entry.url is not None:
        raise Invalid("it has both a `command` and a `url`; hint: keep one")
    return kind in _HTTP


def _endpoint(entry: Entry, variables: Mapping[str, str]) -> Endpoint:
    url = expand.expand(entry.url or "", variables)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise Invalid("its `url` is not an `http://` or `https://` address")
    headers = {header: expand.expand(value, variables) for header, value in entry.headers.items()}
    for header, value in headers.items():
        if not header.isascii() or not header.replace("-", "").replace("_", "").isalnum():
            raise Invalid("the name of a header may have letters, digits, `-` and `_`")
        if not value.isascii() or not value.isprintable():
            raise Invalid(f"the header `{header}` holds characters that a header cannot have")
    return Endpoint(url, headers)


def _program(entry: Entry, workspace: str, variables: Mapping[str, str]) -> Program:
    argv = tuple(expand.expand(part, variables) for part in (entry.command or "", *entry.args))
    env = {variable: expand.expand(value, variables) for variable, value in entry.env.items()}
    cwd = expand.expand(entry.cwd or "", variables)
    if not argv[0]:
        raise Invalid("it has no `command`; hint: a server that runs elsewhere has a `url` instead")
    if any("\0" in text for text in (*argv, *env, *env.values(), cwd)):
        raise Invalid("it holds a null character")
    if any(not variable or "=" in variable for variable in env):
        raise Invalid("the name of a variable cannot be empty or have `=` in it")
    return Program(argv, env, os.path.join(workspace, cwd))  # noqa: PTH118 - pathlib would drop a leading `./`


def _shown_command(argv: tuple[str, ...]) -> str:
    """As a person decides about it: behind a mark is one literal, whatever flag it follows."""
    redactor = redact.Redactor()
    hidden = set(_behind_flags(argv))
    return " ".join(
        questions.mark_of(part)
        if index in hidden and questions.is_literal(part) and not names.is_reference(part)
        else redactor.question(shlex.quote(part))
        for index, part in enumerate(argv)
    )


def _shown_url(url: str) -> str:
    before, at, after = url.partition("@")
    scheme, slashes, rest = before.partition("//")
    if at and slashes and not any(mark in rest for mark in "/?#"):
        url = f"{scheme}//{redact.MARK}@{after}"
    return redact.Redactor().text(url)


def _shown_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """A header's value is a secret more often than not; but that a variable goes out in it, people must see."""
    redactor = redact.Redactor()
    return {header: redactor.text(value) if expand.names_in(value) else redact.MARK for header, value in headers.items()}


def _behind_flags(argv: tuple[str, ...]) -> Iterator[int]:
    """Where a secret stands alone behind the flag that names it, as in `--api-key VALUE`."""
    for index, part in enumerate(argv[:-1], start=1):
        if part.startswith("-") and "=" not in part and names.kind_of(part) is not None:
            yield index


def _own_secrets(target: Program | Endpoint) -> Iterator[str]:
    match target:
        case Program(argv, env):
            redacted = redact.Redactor().value(env)
            yield from (value for variable, value in env.items() if redacted.get(variable) != value)
            yield from (argv[index] for index in _behind_flags(argv))
        case Endpoint(url, headers):
            parts = urlsplit(url)
            yield parts.password or ""
            yield from (value for name, value in parse_qsl(parts.query) if names.kind_of(name) is not None)
            for value in headers.values():
                # `Bearer TOKEN`: the token alone may be quoted too.
                yield from (value, *value.split()[1:])


def _referred_secrets(entry: Entry, variables: Mapping[str, str]) -> Iterator[str]:
    """What was kept out of the file, under a name that says why."""
    texts = (entry.command or "", *entry.args, *entry.env.values(), entry.url or "", *entry.headers.values())
    for variable in frozenset().union(*map(expand.names_in, texts)):
        if names.kind_of(variable) is not None:
            yield variables.get(variable, "")
