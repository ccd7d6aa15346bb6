"""What a host says about itself: who it is, which agents and programs are installed. Looks for them on the search path and
never runs one.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from switchtower.tools.running import installed, threads

TOOLS: Mapping[str, str] = {name: name for name in ("codex", "claude", "gemini", "iflow", "opencode")}
"""From an agent's name to its program."""
DEPENDENCIES = ("bash", "git", "rg", "bwrap")

# relay's hosts spell systems and processors so.
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
    return await threads.run_in_thread(_make_info, host_id, version, tools)


async def diagnose_host(
    host_id: str, version: str, tools: Mapping[str, str] = TOOLS, *, dependencies: Sequence[str] = DEPENDENCIES
) -> HostDoctor:
    return await threads.run_in_thread(_make_doctor, host_id, version, tools, dependencies)


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
    doctor = await threads.run_in_thread(_make_doctor, host_id, version, tools, dependencies)
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
        deps=[Dependency(name, installed.find_program(name) is not None) for name in dependencies],
    )


def _find_tool(name: str, program: str) -> ToolStatus:
    path = installed.find_program(program)
    return ToolStatus(name, path or program, path is not None, None if path else "not found on PATH")
