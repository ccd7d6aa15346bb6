"""The machine around us: Python, libraries, programs, the disk and the clock."""

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from switchtower import __version__, config
from switchtower.cli import amounts
from switchtower.cli.doctoring import finding
from switchtower.tools.running import installed

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
"""The beginning of 2026: a clock before it is wrong."""


def check_machine() -> Iterator[finding.Finding]:
    yield _check_python()
    yield from _check_libraries()
    yield _check_sqlite()
    yield _check_program("git", "worktrees, undo and the git tools need it", "install git")
    yield _check_program("rg", "searching is slower without it", "install ripgrep")
    yield _check_node_js()
    yield _check_clock()


def _check_python() -> finding.Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    detail = f"{version} at {sys.executable}, switchtower {__version__}"
    if sys.version_info < MIN_PYTHON:
        return finding.report_failure("python", detail, f"use Python {'.'.join(map(str, MIN_PYTHON))} or newer")
    return finding.report_ok("python", detail)


def _check_libraries() -> Iterator[finding.Finding]:
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
        yield finding.report_failure(
            "libraries", f"not installed: {', '.join(missing)}", "install switchtower again, with its dependencies"
        )
    yield finding.report_ok("libraries", ", ".join(there))


def _list_required_libraries() -> frozenset[str]:
    """Of our own metadata: the beginning of each requirement is its name."""
    try:
        requirements = metadata.requires("switchtower") or []
    except metadata.PackageNotFoundError:
        return frozenset(_LIBRARIES)
    names = (requirement.split(";")[0] for requirement in requirements if "extra ==" not in requirement)
    return frozenset("".join(c if c.isalnum() or c in "-_." else " " for c in name).split()[0].lower() for name in names)


def _check_sqlite() -> finding.Finding:
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        return finding.report_failure(
            "sqlite", sqlite3.sqlite_version, f"use a Python with SQLite {'.'.join(map(str, MIN_SQLITE))} or newer"
        )
    return finding.report_ok("sqlite", sqlite3.sqlite_version)


def _check_program(name: str, without: str, remedy: str) -> finding.Finding:
    path = installed.find_program(name)
    if path is None:
        return finding.report_warning(name, f"not installed: {without}", remedy)
    return finding.report_ok(name, f"{_read_version(path)} at {path}")


def _check_node_js() -> finding.Finding:
    path = installed.find_program("node")
    return finding.report_ok(
        "node", f"{_read_version(path)} at {path}" if path else "not installed; only building the page needs it"
    )


def _read_version(path: str) -> str:
    try:
        ended = subprocess.run(  # noqa: S603
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_VERSION_TIMEOUT, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return "does not say its version"
    words = ended.stdout.decode(errors="replace").split("\n")[0].split()
    return next((word for word in words if any(c.isdigit() for c in word)), "does not say its version")


def _check_clock() -> finding.Finding:
    now = time.time()
    said = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now))
    if now < _EARLIEST_CLOCK:
        return finding.report_failure("clock", said, "set the clock: expiries of logins and approvals depend on it")
    return finding.report_ok("clock", said)


def check_disk(settings: config.Settings) -> finding.Finding:
    place = next(part for part in (settings.data_dir, *settings.data_dir.parents) if part.exists())
    try:
        free = shutil.disk_usage(place).free
    except OSError as problem:
        return finding.report_warning("disk", f"{place}: {problem.strerror}", "see whether the disk is there")
    detail = f"{amounts.format_size(free)} free at {_shorten_path(place)}"
    if free < FULL_DISK_BYTES:
        return finding.report_failure("disk", detail, "make room: without it nothing can be journalled, so nothing runs")
    if free < LOW_DISK_BYTES:
        return finding.report_warning("disk", detail, "make room, or keep less with `tower config set retention_days 7`")
    return finding.report_ok("disk", detail)


def _shorten_path(place: Path) -> str:
    try:
        return f"~/{place.relative_to(Path.home())}"
    except ValueError:
        return str(place)
