"""Findings of `tower doctor`, and the checks of the machine (Python, libraries, programs, disk, clock) and of the home (folders
and their modes, the socket, the listening daemon and its version)."""

import asyncio
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal

from msgspec import Struct

from switchtower import __version__, config
from switchtower.cli import reachability
from switchtower.client import discovery, errors
from switchtower.client.client import DaemonClient
from switchtower.presentation import formats
from switchtower.settings import parsers
from switchtower.tools.processes import marks

FindingStatus = Literal["ok", "warn", "fail"]


class Finding(Struct, frozen=True):
    name: str
    status: FindingStatus
    detail: str
    remedy: str | None = None


def report_ok(name: str, detail: str) -> Finding:
    return Finding(name, "ok", detail)


def report_warning(name: str, detail: str, remedy: str) -> Finding:
    """Reports something that works less well than it could."""
    return Finding(name, "warn", detail, remedy)


def report_failure(name: str, detail: str, remedy: str) -> Finding:
    """Reports something that was requested but does not work."""
    return Finding(name, "fail", detail, remedy)


MIN_PYTHON = (3, 11)
MIN_SQLITE = (3, 35, 0)
LOW_DISK_BYTES = 1024**3
FULL_DISK_BYTES = 50 * 1024**2
_LIBRARIES = (
    *("argon2-cffi", "click", "mcp", "msgspec", "picows", "pydantic-ai-slim", "pyjwt", "pyte", "pyyaml", "starlette"),
    *("textual", "uvicorn", "uvloop"),
)
_VERSION_TIMEOUT = 10.0
_EARLIEST_CLOCK = 1_767_225_600
"""The start of 2026: an earlier clock is wrong."""


def check_machine() -> Iterator[Finding]:
    yield _check_python()
    yield from _check_libraries()
    yield _check_sqlite()
    yield _check_program("git", "worktrees, undo and the git tools need it", "install git")
    yield _check_program("rg", "searching is slower without it", "install ripgrep")
    yield _check_node_js()
    yield _check_clock()


def _check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    detail = f"{version} at {sys.executable}, switchtower {__version__}"
    if sys.version_info < MIN_PYTHON:
        return report_failure("python", detail, f"use Python {'.'.join(map(str, MIN_PYTHON))} or newer")
    return report_ok("python", detail)


def _check_libraries() -> Iterator[Finding]:
    there: list[str] = []
    missing: list[str] = []
    needed = _list_required_libraries()
    for name in _LIBRARIES:
        try:
            there.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            if name in needed:
                missing.append(name)
    if missing:
        yield report_failure(
            "libraries", f"not installed: {', '.join(missing)}", "install switchtower again, with its dependencies"
        )
    yield report_ok("libraries", ", ".join(there))


def _list_required_libraries() -> frozenset[str]:
    """Returns the names at the start of each requirement in our own package metadata."""
    try:
        requirements = metadata.requires("switchtower") or []
    except metadata.PackageNotFoundError:
        return frozenset(_LIBRARIES)
    names = (requirement.split(";")[0] for requirement in requirements if "extra ==" not in requirement)
    return frozenset("".join(c if c.isalnum() or c in "-_." else " " for c in name).split()[0].lower() for name in names)


def _check_sqlite() -> Finding:
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        return report_failure(
            "sqlite", sqlite3.sqlite_version, f"use a Python with SQLite {'.'.join(map(str, MIN_SQLITE))} or newer"
        )
    return report_ok("sqlite", sqlite3.sqlite_version)


def _check_program(name: str, without: str, remedy: str) -> Finding:
    path = marks.find_program(name)
    if path is None:
        return report_warning(name, f"not installed: {without}", remedy)
    return report_ok(name, f"{_read_version(path)} at {path}")


def _check_node_js() -> Finding:
    path = marks.find_program("node")
    return report_ok("node", f"{_read_version(path)} at {path}" if path else "not installed; only building the page needs it")


def _read_version(path: str) -> str:
    try:
        ended = subprocess.run(  # noqa: S603
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_VERSION_TIMEOUT, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return "does not say its version"
    words = ended.stdout.decode(errors="replace").split("\n")[0].split()
    return next((word for word in words if any(c.isdigit() for c in word)), "does not say its version")


def _check_clock() -> Finding:
    now = time.time()
    said = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now))
    if now < _EARLIEST_CLOCK:
        return report_failure("clock", said, "set the clock: expiries of logins and approvals depend on it")
    return report_ok("clock", said)


def check_disk(settings: config.Settings) -> Finding:
    place = next(part for part in (settings.data_dir, *settings.data_dir.parents) if part.exists())
    try:
        free = shutil.disk_usage(place).free
    except OSError as problem:
        return report_warning("disk", f"{place}: {problem.strerror}", "see whether the disk is there")
    detail = f"{formats.format_size(free)} free at {_shorten_path(place)}"
    if free < FULL_DISK_BYTES:
        return report_failure("disk", detail, "make room: without it nothing can be journalled, so nothing runs")
    if free < LOW_DISK_BYTES:
        return report_warning("disk", detail, "make room, or keep less with `tower config set retention_days 7`")
    return report_ok("disk", detail)


def _shorten_path(place: Path) -> str:
    try:
        return f"~/{place.relative_to(Path.home())}"
    except ValueError:
        return str(place)


_DAEMON_TIMEOUT = 10.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_home(settings: config.Settings) -> Iterator[Finding]:
    yield from _check_folders(settings)
    yield from _check_files(settings)
    pid = discovery.find_lock_holder(settings)
    endpoints = discovery.read_endpoints(settings)
    yield _check_daemon(settings, pid)
    yield _check_socket(settings, pid)
    # The running daemon may have been started with other flags than this command.
    flags = endpoints.options if pid and endpoints else {}
    http, pi = (flags.get(name, wanted) for name, wanted in (("http", settings.http), ("pi", settings.pi)))
    serving = endpoints if pid else None
    yield _check_port("http", http, serving.http if serving else None, running=bool(pid), asked="http" in settings.asked)
    yield _check_port("pi", pi, serving.pi if serving else None, running=bool(pid), asked="pi" in settings.asked)
    yield from _check_reachability(settings, serving)


def _check_folders(settings: config.Settings) -> Iterator[Finding]:
    for name, folder in zip(settings.folders._fields, settings.folders, strict=True):
        label = f"{name} folder"
        try:
            status = folder.stat()
        except FileNotFoundError:
            yield report_ok(label, f"{folder} is not there yet; it is made when it is needed")
            continue
        except OSError as problem:
            yield report_failure(label, f"{folder}: {problem.strerror}", "see who owns it and the folders above it")
            continue
        if not stat.S_ISDIR(status.st_mode):
            yield report_failure(label, f"{folder} is not a folder", "move it away")
        elif status.st_uid != os.geteuid():
            yield report_failure(
                label, f"{folder} belongs to uid {status.st_uid}", f"`chown -R $USER {folder}`, or choose another `TOWER_HOME`"
            )
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            yield report_failure(label, f"{folder} cannot be written", f"`chmod u+rwx {folder}`")
        elif status.st_mode & _OTHERS_WRITE:
            yield report_failure(label, f"{folder} can be written by others ({_format_mode(status)})", f"`chmod go-w {folder}`")
        elif name != "config" and status.st_mode & _OTHERS:
            yield report_warning(
                label, f"{folder} can be looked into by others ({_format_mode(status)})", f"`chmod 700 {folder}`"
            )
        else:
            yield report_ok(label, f"{folder} ({_format_mode(status)})")


def _check_files(settings: config.Settings) -> Iterator[Finding]:
    """Checks the modes of files that contain secrets or conversations."""
    private = (
        settings.config_file,
        settings.journal_path,
        settings.registry_path,
        settings.host_file,
        settings.endpoints_path,
        settings.data_dir / "owner.token",
        settings.data_dir / "jwt.secret",
        settings.data_dir / "webpush.key",
        settings.data_dir / "webpush.json",
        settings.log_path,
    )
    open_to_others = [file for file in private if _is_readable_by_others(file)]
    for file in open_to_others:
        yield report_failure("private files", f"{file} can be read by others", f"`chmod 600 {file}`")
    if not open_to_others:
        yield report_ok("private files", "only you can read them")


def _is_readable_by_others(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & _OTHERS)
    except OSError:
        return False


def _check_daemon(settings: config.Settings, pid: int | None) -> Finding:
    if not pid:
        return report_ok("daemon", "not running; a command that needs it starts it")
    try:
        version = asyncio.run(_fetch_version(settings))
    except (errors.ClientError, TimeoutError) as problem:
        said = str(problem) or f"no answer within {_DAEMON_TIMEOUT:g} s"
        return report_failure("daemon", f"pid {pid} holds the home and does not answer: {said}", "`tower stop`; see `tower logs`")
    detail = f"pid {pid}, version {version}"
    if version != __version__:
        return report_warning(
            "daemon", f"{detail}; this command is {__version__}", "`tower stop`, and the next command starts the new one"
        )
    return report_ok("daemon", detail)


async def _fetch_version(settings: config.Settings) -> str:
    async with asyncio.timeout(_DAEMON_TIMEOUT):
        async with await DaemonClient.connect(settings, start=False) as client:
            return client.runtime_version


def _check_socket(settings: config.Settings, pid: int | None) -> Finding:
    path = discovery.locate_socket(settings) if pid else settings.socket
    try:
        status = path.lstat()
    except FileNotFoundError:
        if pid:
            return report_failure("socket", f"{path} is gone while the daemon runs", "`tower stop`, and start it anew")
        return report_ok("socket", f"{path}, when a daemon runs")
    except OSError as problem:
        return report_failure("socket", f"{path}: {problem.strerror}", "choose another with `tower config set socket PATH`")
    if not stat.S_ISSOCK(status.st_mode):
        return report_failure("socket", f"{path} is no socket", "move it away, or `tower config set socket PATH`")
    if status.st_mode & _OTHERS:
        return report_failure("socket", f"{path} can be reached by others ({_format_mode(status)})", f"`chmod 600 {path}`")
    if not pid and _is_answering(path):
        return report_warning(
            "socket", f"somebody else listens at {path}", "see who: `lsof` or `ss -xlp`; systemd does, for a service"
        )
    return report_ok("socket", f"{path} ({_format_mode(status)})" + ("" if pid else ", left by a daemon that is gone"))


def _is_answering(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(os.fsencode(path)) == 0


def _check_reachability(settings: config.Settings, endpoints: discovery.EndpointsFile | None) -> Iterator[Finding]:
    """Checks the running daemon, or else the one that these settings would start."""
    wanted = {name: text for name, text in (("http", settings.http), ("pi", settings.pi)) if text != "off"}
    if endpoints is not None:
        http, pi, listening = endpoints.http, endpoints.pi, endpoints.listening or wanted
    else:
        secure = "s" if settings.tls_cert is not None else ""
        http, pi = (_format_url(f"{scheme}{secure}", wanted.get(name)) for scheme, name in (("http", "http"), ("ws", "pi")))
        listening = wanted
    public_url = (endpoints.options.get("public_url") if endpoints else None) or settings.public_url
    reached = reachability.describe_reachability(http=http, pi=pi, listening=listening, public_url=public_url)
    if reached.warning:
        yield report_warning("other machines", reached.warning, reachability.TLS_REMEDY)
    elif any(reached):
        yield report_ok("other machines", ", ".join(url for url in reached if url))


def _format_url(scheme: str, bound: str | None) -> str | None:
    address = None if bound is None else parsers.parse_address(bound)
    return None if address is None else f"{scheme}://127.0.0.1:{address.port}"


def _check_port(name: str, wanted: str, serving: str | None, *, running: bool, asked: bool) -> Finding:
    address = parsers.parse_address(wanted)
    if running:
        if serving is None:
            return (
                report_ok(name, "off")
                if address is None
                else report_warning(
                    name,
                    f"{wanted} is not served by the daemon that runs",
                    "`tower stop`, free the port or choose another, and start it anew",
                )
            )
        if address is not None and address.port and not serving.partition("/ws")[0].endswith(f":{address.port}"):
            return report_warning(
                name, f"{serving}, because {wanted} was in use when the daemon started", f"`tower config set {name} HOST:PORT`"
            )
        return report_ok(name, f"{serving}, which is ours")
    if address is None:
        return report_ok(name, "off")
    if not address.port:
        return report_ok(name, f"a free port of {address.host}")
    problem = _find_bind_problem(address)
    if problem is None:
        return report_ok(name, f"{wanted} is free")
    remedy = f"see who has it with `ss -ltnp`, or choose another: `tower config set {name} HOST:PORT`"
    return report_failure(name, f"{wanted}: {problem}", remedy) if asked else report_warning(name, f"{wanted}: {problem}", remedy)


def _find_bind_problem(address: parsers.ListenAddress) -> str | None:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


def _format_mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"
