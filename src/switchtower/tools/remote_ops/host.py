"""Information about a host: its identity, and the agents and programs that are installed, which are searched on the path and
never run; and the end of the daemon's own log, limited to the requested size.
"""

import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from switchtower.tools import concurrency
from switchtower.tools.processes import command_environment
from switchtower.tools.remote_ops import paths

TOOLS: Mapping[str, str] = {name: name for name in ("codex", "claude", "gemini", "iflow", "opencode")}
"""The program of each agent, by the agent's name."""
DEPENDENCIES = ("bash", "git", "rg", "bwrap")

# relay's hosts spell systems and processors this way.
_SYSTEMS = {"darwin": "macos"}
_PROCESSORS = {"arm64": "aarch64", "amd64": "x86_64"}


class ToolStatus(Struct, frozen=True):
    tool: str
    bin: str
    ok: bool
    error: str | None


class Dependency(Struct, frozen=True):
    name: str
    ok: bool


class HostInfo(Struct, frozen=True, kw_only=True):
    host_id: str
    pid: int
    os: str
    arch: str
    version: str
    tools: list[ToolStatus]


class HostDoctor(HostInfo, frozen=True, kw_only=True):
    deps: list[Dependency]


class HostCapabilities(HostDoctor, frozen=True, kw_only=True):
    server_base_url: str | None
    local_unix_socket: str | None
    spool_db_path: str | None
    log_path: str | None
    supported_rpc: list[str]


async def read_host_info(host_id: str, version: str, tools: Mapping[str, str] = TOOLS) -> HostInfo:
    return await concurrency.run_in_thread(_make_info, host_id, version, tools)


async def diagnose_host(
    host_id: str, version: str, tools: Mapping[str, str] = TOOLS, *, dependencies: Sequence[str] = DEPENDENCIES
) -> HostDoctor:
    return await concurrency.run_in_thread(_make_doctor, host_id, version, tools, dependencies)


async def read_host_capabilities(
    host_id: str,
    version: str,
    tools: Mapping[str, str] = TOOLS,
    *,
    server_base_url: str | None,
    local_unix_socket: str | None,
    spool_db_path: str | None,
    log_path: str | None,
    supported_rpc: Iterable[str],
    dependencies: Sequence[str] = DEPENDENCIES,
) -> HostCapabilities:
    doctor = await concurrency.run_in_thread(_make_doctor, host_id, version, tools, dependencies)
    return HostCapabilities(
        host_id=doctor.host_id,
        pid=doctor.pid,
        os=doctor.os,
        arch=doctor.arch,
        version=doctor.version,
        tools=doctor.tools,
        deps=doctor.deps,
        server_base_url=server_base_url,
        local_unix_socket=local_unix_socket,
        spool_db_path=spool_db_path,
        log_path=log_path,
        supported_rpc=sorted(supported_rpc),
    )


def _make_info(host_id: str, version: str, tools: Mapping[str, str]) -> HostInfo:
    machine = os.uname().machine.lower()
    return HostInfo(
        host_id=host_id,
        pid=os.getpid(),
        os=_SYSTEMS.get(sys.platform, sys.platform),
        arch=_PROCESSORS.get(machine, machine),
        version=version,
        tools=[_find_tool(name, program) for name, program in tools.items()],
    )


def _make_doctor(host_id: str, version: str, tools: Mapping[str, str], dependencies: Sequence[str]) -> HostDoctor:
    info = _make_info(host_id, version, tools)
    return HostDoctor(
        host_id=info.host_id,
        pid=info.pid,
        os=info.os,
        arch=info.arch,
        version=info.version,
        tools=info.tools,
        deps=[Dependency(name, command_environment.find_program(name) is not None) for name in dependencies],
    )


def _find_tool(name: str, program: str) -> ToolStatus:
    path = command_environment.find_program(program)
    return ToolStatus(name, path or program, path is not None, None if path else "not found on PATH")


MOST_LINES = 2000
MOST_BYTES = 2_000_000


class LogTail(Struct, frozen=True):
    path: str
    text: str
    truncated: bool
    """The file has more bytes than were read."""


async def read_log_tail(path: str | None, lines: int = 200, max_bytes: int = 200_000) -> LogTail:
    """Requests beyond the limits are clamped."""
    if path is None:
        raise paths.OperationRefused("HOSTD_LOG_PATH is not set")
    return await concurrency.run_in_thread(_read_tail, path, min(max(lines, 1), MOST_LINES), min(max(max_bytes, 1), MOST_BYTES))


def _read_tail(path: str, lines: int, max_bytes: int) -> LogTail:
    with paths.translate_errors():
        # Nonblocking, so that opening a pipe does not wait for its other end.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise paths.OperationRefused(paths.NOT_REGULAR)
            start = max(status.st_size - max_bytes, 0)
            end = os.pread(file, max_bytes, start)
            begins_a_line = start == 0 or os.pread(file, 1, start - 1) == b"\n"
        finally:
            os.close(file)
    if not begins_a_line and b"\n" in end[:-1]:
        end = end.partition(b"\n")[2]
    # The lines are split by hand: a carriage return does not end a line here.
    ending = b"\n" if end.endswith(b"\n") else b""
    last = b"\n".join(end.removesuffix(b"\n").split(b"\n")[-lines:]) + ending
    return LogTail(path, last.decode(errors="replace"), start > 0)
