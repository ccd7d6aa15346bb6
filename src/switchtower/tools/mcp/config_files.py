"""Reads the files that configure MCP servers: `.mcp.json` in the workspace and the user's own `mcp.json`, again for every run.

A bad file or entry becomes a sentence for people and is skipped; it is never fatal. These calls block and belong on a thread.
"""

import os
import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from switchtower.tools import outcome
from switchtower.tools.files import scope
from switchtower.tools.mcp import config

WORKSPACE_FILE = ".mcp.json"
MOST_BYTES = 256 * 1024
MOST_SERVERS = 32
"""The most servers in one file."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FoundServers(Struct, frozen=True):
    servers: tuple[config.ServerConfig, ...] = ()
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
    except (OSError, outcome.ToolFailed, config.InvalidServerEntry) as error:
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
    servers: list[config.ServerConfig] = []
    problems: list[str] = []
    for name, raw in entries.items():
        try:
            entry = msgspec.convert(raw, config.ServerEntry)
            server = config.configure_server(name, entry, trusted=trusted, file=file, workspace=workspace, variables=variables)
            if server is not None and len(servers) == MOST_SERVERS:
                raise config.InvalidServerEntry(f"a file may have {MOST_SERVERS} servers")
        except (config.InvalidServerEntry, config.ExpansionError, msgspec.ValidationError) as error:
            problems.append(f"the server `{_format_name(name)}` in `{file}` was left out: {error}")
        else:
            servers += [server] if server is not None else []
    return FoundServers(tuple(servers), tuple(problems[:MOST_SERVERS]))


def _parse_entries(content: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(content.removeprefix(_BYTE_ORDER_MARK))
    except (ValueError, RecursionError) as error:
        raise config.InvalidServerEntry(f"{error or 'it is nested too deep'}") from None
    entries = document.get("mcpServers", {}) if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise config.InvalidServerEntry('it is not of the form `{"mcpServers": {"NAME": {…}}}`')
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
        raise config.InvalidServerEntry("it is not a regular file")
    return _read_bounded(file)


def _read_bounded(file: int) -> bytes:
    with os.fdopen(file, "rb") as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise config.InvalidServerEntry(f"it is longer than {MOST_BYTES // 1024} KiB")
    return content


def _format_name(name: str) -> str:
    name = "".join(character if character.isprintable() else "?" for character in name)
    return name if len(name) <= config.LONGEST_NAME else f"{name[: config.LONGEST_NAME]}…"
