"""Information about a host: its identity, and the agents and programs that are installed, which are searched on the path and
never run; and the end of the daemon's own log, limited to the requested size.

The paths that a peer may name: relative, without `..`, and never out of the run's folder, whatever links lie there. This is
stricter than `scope`, which resolves them.

A refusal is one error, whose message is relay's error string: short, without a path of this machine and without any content of a
file."""

import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from msgspec import Struct

from switchtower.tools import concurrency, outcome
from switchtower.tools.files import scope
from switchtower.tools.processes import marks

_LONGEST_PATH = 4096
"""The longest path in bytes; no system accepts more."""


def check_path(cwd: str, path: str) -> None:
    """Refuses a path by its text alone, before an approval is requested. Each function of this package checks for itself too."""
    if not path:
        raise OperationRefused("path is empty")
    if "\0" in path:
        raise OperationRefused("path contains a null character")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise OperationRefused("path is not valid Unicode") from None
    if size > _LONGEST_PATH:
        raise OperationRefused(TOO_LONG)
    if path.startswith("/"):
        raise OperationRefused(MUST_BE_RELATIVE)
    # This holds even where it would lead back inside: relay's hosts refuse the part at any position.
    if ".." in path.split("/"):
        raise OperationRefused(CONTAINS_PARENT)
    try:
        scope.check_path(cwd, path)
    except scope.PathRefused:
        raise OperationRefused(SECRET) from None


@contextmanager
def locate_path(cwd: str, path: str, *, make_folders: bool = False) -> Iterator[scope.ResolvedPath]:
    """Yields the target of the path. Errors of the operations there become refusals too. Blocks."""
    check_path(cwd, path)
    with translate_errors(), scope.locate(cwd, path, make_folders=make_folders) as place:
        yield place


def check_folder_exists(cwd: str) -> None:
    """Refuses a run's folder that no longer exists. Blocks."""
    with locate_path(cwd, "."):
        pass


def refuse_all_but_files(path: str, place: scope.ResolvedPath) -> None:
    """Checks the type before anything is opened: opening a device can trigger it. A path that does not exist yet passes."""
    if path.endswith(("/", "/.")):
        raise OperationRefused(IS_A_FOLDER if _is_folder(place) else NOT_A_FOLDER)
    try:
        mode = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise OperationRefused(IS_A_FOLDER)
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise OperationRefused(NOT_REGULAR)


def open_to_read(place: scope.ResolvedPath) -> int:
    """Opens a regular file of a disk. A run may work in `/`, and a peer must not read the daemon's own environment in `/proc`."""
    file, status = scope.open_to_read(place)
    if status.st_dev == _find_proc_device():
        os.close(file)
        raise OperationRefused(SECRET)
    return file


@cache
def _find_proc_device() -> int | None:
    try:
        return Path("/proc").stat().st_dev
    except OSError:
        return None


def _is_folder(place: scope.ResolvedPath) -> bool:
    return stat.S_ISDIR(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode)


# relay, interop: these strings exactly.
MUST_BE_RELATIVE = "path must be relative"
CONTAINS_PARENT = "path contains .."
ESCAPES = "path escapes run cwd"

NO_CWD = "the run's cwd cannot be opened"
NO_SUCH_FILE = "no such file"
IS_A_FOLDER = "is a directory"
NOT_A_FOLDER = "not a directory"
NOT_REGULAR = "not a regular file"
NOT_TEXT = "not a UTF-8 file"
TOO_LARGE = "file is too large"
TOO_LONG = "path is too long"
SECRET = "path may hold secrets"  # noqa: S105 - a sentence

_BY_NUMBER = {
    errno.ENOENT: NO_SUCH_FILE,
    errno.EISDIR: IS_A_FOLDER,
    errno.ENOTDIR: NOT_A_FOLDER,
    errno.ENAMETOOLONG: TOO_LONG,
    errno.ENXIO: NOT_REGULAR,
    errno.ELOOP: ESCAPES,
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
}


class OperationRefused(Exception):
    """The operation is impossible or not permitted."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turns errors of `scope` and of the system into relay's strings."""
    try:
        yield
    except scope.PathRefused as refused:
        # The text of the path was checked before: the remaining cause is a link out, or one that changed meanwhile.
        raise OperationRefused(ESCAPES) from refused
    except outcome.ToolFailed as failed:
        raise OperationRefused(NO_CWD if failed.type is outcome.ToolErrorType.SANDBOX_UNREACHABLE else NOT_REGULAR) from failed
    except OSError as error:
        raise OperationRefused(_BY_NUMBER.get(error.errno or 0, (error.strerror or "it cannot be read").lower())) from error


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
        deps=[Dependency(name, marks.find_program(name) is not None) for name in dependencies],
    )


def _find_tool(name: str, program: str) -> ToolStatus:
    path = marks.find_program(program)
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
        raise OperationRefused("HOSTD_LOG_PATH is not set")
    return await concurrency.run_in_thread(_read_tail, path, min(max(lines, 1), MOST_LINES), min(max(max_bytes, 1), MOST_BYTES))


def _read_tail(path: str, lines: int, max_bytes: int) -> LogTail:
    with translate_errors():
        # Nonblocking, so that opening a pipe does not wait for its other end.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise OperationRefused(NOT_REGULAR)
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
