"""The configuration of one MCP server: the program or the endpoint, the form that users are shown, and the text that its approval
is bound to. It starts nothing.

Users see a server as its file spells it, with `${VAR}` unexpanded and secrets hidden. The approval is bound to a digest of the
expanded values, so it holds for nothing else.

`${VAR}` and `${VAR:-default}` are spelled as in other MCP clients.

Reads the files that configure MCP servers: `.mcp.json` in the workspace and the user's own `mcp.json`, again for every run.

A bad file or entry becomes a sentence for people and is skipped; it is never fatal. These calls block and belong on a thread."""

import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct

from switchtower.core import redact
from switchtower.core.redact import names, questions
from switchtower.tools import outcome
from switchtower.tools.files import scope

LONGEST_NAME = 64
_MOST_PARTS = 256
"""The most arguments, variables or headers of one server."""
_HTTP = frozenset({"http", "streamable-http", "streamable_http", "streamablehttp"})


class InvalidServerEntry(ValueError):
    """An entry cannot be used."""


class ServerEntry(Struct, frozen=True):
    """A server as the file spells it. Further fields of other clients are ignored."""

    type: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    disabled: bool = False


class ServerProgram(Struct, frozen=True):
    """A server that we start and talk to over its standard streams."""

    argv: tuple[str, ...]
    env: dict[str, str]
    """The variables that it gets in addition to the environment that every server has."""
    cwd: str

    def __repr__(self) -> str:
        return "Program(…)"  # arguments and variables may hold secrets


class ServerEndpoint(Struct, frozen=True):
    """A server that runs elsewhere and is reached over streamable HTTP."""

    url: str
    headers: dict[str, str]

    def __repr__(self) -> str:
        return "Endpoint(…)"


class ServerConfig(Struct, frozen=True):
    name: str
    trusted: bool
    """True for a server of the user's own file. A workspace's file comes with whatever was cloned, and needs an approval."""
    target: ServerProgram | ServerEndpoint
    shown: dict[str, Any]
    """The form that users are shown for their decision."""
    secrets: tuple[str, ...] = ()
    """Values that must not appear in a message."""

    def __repr__(self) -> str:
        return f"ServerConfig({self.name!r}, trusted={self.trusted})"

    @property
    def subject(self) -> str:
        """The subject of an approval: the text that users see, and a digest of exactly what it expands to."""
        exact: list[Any]
        match self.target:
            case ServerProgram(argv, env, cwd):
                exact = [self.name, "start", argv, sorted(env.items()), cwd]
            case ServerEndpoint(url, headers):
                exact = [self.name, "connect", url, sorted(headers.items())]
        digest = hashlib.sha256(json.dumps(exact).encode()).hexdigest()
        return json.dumps({"shown": self.shown, "sha256": digest}, sort_keys=True)


def configure_server(
    name: str, entry: ServerEntry, *, trusted: bool, file: str, workspace: str, variables: Mapping[str, str]
) -> ServerConfig | None:
    """Makes a server of an entry; returns `None` when it is disabled. Raises `InvalidServerEntry` or `ExpansionError`."""
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InvalidServerEntry(f"a name has 1 to {LONGEST_NAME} printable characters")
    if entry.disabled:
        return None
    if max(len(entry.args), len(entry.env), len(entry.headers)) > _MOST_PARTS:
        raise InvalidServerEntry(f"it has more than {_MOST_PARTS} arguments, variables or headers")
    shown: dict[str, Any] = {"server": name, "file": file}
    target: ServerProgram | ServerEndpoint
    if _is_http(entry):
        target = _make_endpoint(entry, variables)
        shown |= {"url": _format_url(entry.url or ""), "headers": _format_headers(entry.headers)}
    else:
        target = _make_program(entry, workspace, variables)
        shown |= {
            "command": _format_command((entry.command or "", *entry.args)),
            "folder": entry.cwd or workspace,
            "env": redact.Redactor().redact_question_value(entry.env),
        }
    secrets = {*_iterate_own_secrets(target), *_iterate_referred_secrets(entry, variables)}
    return ServerConfig(name, trusted, target, shown, tuple(sorted(secrets - {""})))


def find_literal_secret(entry: ServerEntry, redactor: redact.Redactor) -> str | None:
    """Returns the part of an entry that contains a secret itself instead of a `${VAR}`; None when there is none."""
    for variable, value in entry.env.items():
        named = names.classify_name(variable) is not None and redactor.redact_value({variable: value})[variable] != value
        if redactor.redact_text(value) != value or (named and not names.is_reference(value)):
            return f"env.{variable}"
    for header, value in entry.headers.items():
        # This is the same rule as for display: a value that refers to no variable counts as a secret.
        if redactor.redact_text(value) != value or not list_variables(value):
            return f"headers.{header}"
    argv = (entry.command or "", *entry.args)
    hidden = {index for index in _find_flag_values(argv) if not names.is_reference(argv[index])}
    if hidden or any(redactor.redact_text(part) != part for part in argv):
        return "args"
    shown = redactor.redact_text(_format_url(entry.url or ""))
    return "url" if shown != (entry.url or "") else None


def _is_http(entry: ServerEntry) -> bool:
    kind = entry.type.lower() if entry.type else ("http" if entry.url is not None and entry.command is None else "stdio")
    if kind == "sse":
        raise InvalidServerEntry(
            'the `sse` transport is not supported; hint: use the server\'s streamable HTTP address, `"type": "http"`'
        )
    if kind not in _HTTP and kind != "stdio":
        raise InvalidServerEntry('its `type` is not known; hint: use `"stdio"` or `"http"`')
    if entry.command is not None and entry.url is not None:
        raise InvalidServerEntry("it has both a `command` and a `url`; hint: keep one")
    return kind in _HTTP


def _make_endpoint(entry: ServerEntry, variables: Mapping[str, str]) -> ServerEndpoint:
    url = expand_variables(entry.url or "", variables)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise InvalidServerEntry("its `url` is not an `http://` or `https://` address")
    headers = {header: expand_variables(value, variables) for header, value in entry.headers.items()}
    for header, value in headers.items():
        if not header.isascii() or not header.replace("-", "").replace("_", "").isalnum():
            raise InvalidServerEntry("the name of a header may have letters, digits, `-` and `_`")
        if not value.isascii() or not value.isprintable():
            raise InvalidServerEntry(f"the header `{header}` holds characters that a header cannot have")
    return ServerEndpoint(url, headers)


def _make_program(entry: ServerEntry, workspace: str, variables: Mapping[str, str]) -> ServerProgram:
    argv = tuple(expand_variables(part, variables) for part in (entry.command or "", *entry.args))
    env = {variable: expand_variables(value, variables) for variable, value in entry.env.items()}
    cwd = expand_variables(entry.cwd or "", variables)
    if not argv[0]:
        raise InvalidServerEntry("it has no `command`; hint: a server that runs elsewhere has a `url` instead")
    if any("\0" in text for text in (*argv, *env, *env.values(), cwd)):
        raise InvalidServerEntry("it holds a null character")
    if any(not variable or "=" in variable for variable in env):
        raise InvalidServerEntry("the name of a variable cannot be empty or have `=` in it")
    return ServerProgram(argv, env, os.path.join(workspace, cwd))  # noqa: PTH118 - pathlib would drop a leading `./`


def _format_command(argv: tuple[str, ...]) -> str:
    """Formats the command for the user's decision: a redaction mark hides one literal, whatever flag it follows."""
    redactor = redact.Redactor()
    hidden = set(_find_flag_values(argv))
    return " ".join(
        questions.make_mark(part)
        if index in hidden and questions.is_literal(part) and not names.is_reference(part)
        else redactor.redact_question(shlex.quote(part))
        for index, part in enumerate(argv)
    )


def _format_url(url: str) -> str:
    before, at, after = url.partition("@")
    scheme, slashes, rest = before.partition("//")
    if at and slashes and not any(mark in rest for mark in "/?#"):
        url = f"{scheme}//{redact.MARK}@{after}"
    return redact.Redactor().redact_text(url)


def _format_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Hides the values: most headers are secrets. But users must see that a variable is sent in one."""
    redactor = redact.Redactor()
    return {header: redactor.redact_text(value) if list_variables(value) else redact.MARK for header, value in headers.items()}


def _find_flag_values(argv: tuple[str, ...]) -> Iterator[int]:
    """Yields the positions of secrets that follow the flag that names them, as in `--api-key VALUE`."""
    for index, part in enumerate(argv[:-1], start=1):
        if part.startswith("-") and "=" not in part and names.classify_name(part) is not None:
            yield index


def _iterate_own_secrets(target: ServerProgram | ServerEndpoint) -> Iterator[str]:
    match target:
        case ServerProgram(argv, env):
            redacted = redact.Redactor().redact_value(env)
            yield from (value for variable, value in env.items() if redacted.get(variable) != value)
            yield from (argv[index] for index in _find_flag_values(argv))
        case ServerEndpoint(url, headers):
            parts = urlsplit(url)
            yield parts.password or ""
            yield from (value for name, value in parse_qsl(parts.query) if names.classify_name(name) is not None)
            for value in headers.values():
                # `Bearer TOKEN`: a message may also quote the token alone.
                yield from (value, *value.split()[1:])


def _iterate_referred_secrets(entry: ServerEntry, variables: Mapping[str, str]) -> Iterator[str]:
    """Yields the values that were kept out of the file, in variables whose names mark them as secrets."""
    texts = (entry.command or "", *entry.args, *entry.env.values(), entry.url or "", *entry.headers.values())
    for variable in frozenset().union(*map(list_variables, texts)):
        if names.classify_name(variable) is not None:
            yield variables.get(variable, "")


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_LONGEST = 64 * 1024
"""The longest result of one text: a short file can name a long variable many times."""


class ExpansionError(ValueError):
    """A variable is not set, or the text grows too long."""


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Returns the text with its variables expanded. Any other text stays unchanged."""
    pieces: list[str] = []
    length = end = 0
    for variable in _VARIABLE.finditer(text):
        pieces += (text[end : variable.start()], _get_value(variable, variables))
        length += len(pieces[-2]) + len(pieces[-1])
        end = variable.end()
        if length > _LONGEST:
            break
    if length + len(text) - end > _LONGEST:
        raise ExpansionError(f"a text of it is longer than {_LONGEST} characters with its variables filled in")
    return "".join([*pieces, text[end:]])


def list_variables(text: str) -> frozenset[str]:
    """Returns the variables that a text refers to."""
    return frozenset(variable[1] for variable in _VARIABLE.finditer(text))


def _get_value(variable: re.Match[str], variables: Mapping[str, str]) -> str:
    name, default = variable.groups()
    if default is not None:
        # Like in a shell, `:-` also replaces a value that is set but empty.
        return variables.get(name) or default
    try:
        return variables[name]
    except KeyError:
        raise ExpansionError(f"`${{{name}}}` is not set; hint: set it, or write `${{{name}:-default}}`") from None


WORKSPACE_FILE = ".mcp.json"
MOST_BYTES = 256 * 1024
MOST_SERVERS = 32
"""The most servers in one file."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FoundServers(Struct, frozen=True):
    servers: tuple[ServerConfig, ...] = ()
    problems: tuple[str, ...] = ()
    """The reasons why an entry or a file was skipped."""


class SessionServers(Struct, frozen=True):
    """Servers that a session adds to those of the files. They were read from this file before."""

    entries: Mapping[str, Any]
    file: str
    trusted: bool
    """The same as in `ServerConfig`."""


def find_servers(
    workspace: str,
    user_file: Path | None,
    variables: Mapping[str, str],
    handed: SessionServers | None = None,
    *,
    trusted: bool = True,
) -> FoundServers:
    """Returns all servers for this workspace; its own ones only when it is `trusted`. The user's servers take precedence over the
    workspace's of the same name, and the session's servers over those of the files.
    """
    own = FoundServers()
    if user_file is not None:
        own = _read_servers(str(user_file), partial(_read_user_file, user_file), workspace, variables, trusted=True)
    theirs = FoundServers()
    if trusted:
        theirs = _read_servers(WORKSPACE_FILE, partial(_read_workspace_file, workspace), workspace, variables, trusted=False)
    if handed is not None and (trusted or handed.trusted):
        brought = _configure_all(handed.entries, handed.file, workspace, variables, trusted=handed.trusted)
        own, theirs = (_merge(brought, own), theirs) if handed.trusted else (own, _merge(brought, theirs))
    own_names = {server.name for server in own.servers}
    shadowed = tuple(
        f"the server `{server.name}` in `{server.shown['file']}` was left out: your own file has one of that name"
        for server in theirs.servers
        if server.name in own_names
    )
    return FoundServers(
        (*own.servers, *(server for server in theirs.servers if server.name not in own_names)),
        (*own.problems, *theirs.problems, *shadowed),
    )


def _read_servers(
    file: str, read: Callable[[], bytes | None], workspace: str, variables: Mapping[str, str], *, trusted: bool
) -> FoundServers:
    try:
        content = read()
        entries = _parse_entries(content) if content is not None else {}
    except (OSError, outcome.ToolFailed, InvalidServerEntry) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return FoundServers(problems=(f"`{file}` cannot be used: {reason}",))
    return _configure_all(entries, file, workspace, variables, trusted=trusted)


def _merge(brought: FoundServers, usual: FoundServers) -> FoundServers:
    names = {server.name for server in brought.servers}
    kept = (server for server in usual.servers if server.name not in names)
    return FoundServers((*brought.servers, *kept), (*brought.problems, *usual.problems))


def _configure_all(
    entries: Mapping[str, Any], file: str, workspace: str, variables: Mapping[str, str], *, trusted: bool
) -> FoundServers:
    servers: list[ServerConfig] = []
    problems: list[str] = []
    for name, raw in entries.items():
        try:
            entry = msgspec.convert(raw, ServerEntry)
            server = configure_server(name, entry, trusted=trusted, file=file, workspace=workspace, variables=variables)
            if server is not None and len(servers) == MOST_SERVERS:
                raise InvalidServerEntry(f"a file may have {MOST_SERVERS} servers")
        except (InvalidServerEntry, ExpansionError, msgspec.ValidationError) as error:
            problems.append(f"the server `{_format_name(name)}` in `{file}` was left out: {error}")
        else:
            servers += [server] if server is not None else []
    return FoundServers(tuple(servers), tuple(problems[:MOST_SERVERS]))


def _parse_entries(content: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(content.removeprefix(_BYTE_ORDER_MARK))
    except (ValueError, RecursionError) as error:
        raise InvalidServerEntry(f"{error or 'it is nested too deep'}") from None
    entries = document.get("mcpServers", {}) if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise InvalidServerEntry('it is not of the form `{"mcpServers": {"NAME": {…}}}`')
    return entries


def _read_workspace_file(workspace: str) -> bytes | None:
    """Reads through `scope`: a link that leads out of the workspace is not followed."""
    try:
        with scope.locate(workspace, WORKSPACE_FILE) as place:
            file, _ = scope.open_to_read(place)
    except FileNotFoundError:
        return None
    return _read_bounded(file)


def _read_user_file(path: Path) -> bytes | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise InvalidServerEntry("it is not a regular file")
    return _read_bounded(file)


def _read_bounded(file: int) -> bytes:
    with os.fdopen(file, "rb") as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise InvalidServerEntry(f"it is longer than {MOST_BYTES // 1024} KiB")
    return content


def _format_name(name: str) -> str:
    name = "".join(character if character.isprintable() else "?" for character in name)
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
