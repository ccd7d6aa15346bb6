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

OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 35, 0)
LITTLE_SPACE = 1024**3
NO_SPACE = 50 * 1024**2
_LIBRARIES = (
    *("argon2-cffi", "click", "mcp", "msgspec", "picows", "pydantic-ai-slim", "pyjwt", "pyte", "pyyaml", "starlette"),
    *("textual", "uvicorn", "uvloop"),
)
_PATIENCE = 10.0
_WRITTEN_IN = 1_767_225_600
"""The beginning of 2026: a clock before it is wrong."""


def look() -> Iterator[finding.Finding]:
    yield _python()
    yield from _libraries()
    yield _sqlite()
    yield _program("git", "worktrees, undo and the git tools need it", "install git")
    yield _program("rg", "searching is slower without it", "install ripgrep")
    yield _node()
    yield _clock()


def _python() -> finding.Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    detail = f"{version} at {sys.executable}, switchtower {__version__}"
    if sys.version_info < OLDEST_PYTHON:
        return finding.fail("python", detail, f"use Python {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    return finding.ok("python", detail)


def _libraries() -> Iterator[finding.Finding]:
    there: list[str] = []
    missing: list[str] = []
    needed = _needed()
    for name in _LIBRARIES:
        try:
            there.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            if name in needed:
                missing.append(name)
    if missing:
        yield finding.fail(
            "libraries", f"not installed: {', '.join(missing)}", "install switchtower again, with its dependencies"
        )
    yield finding.ok("libraries", ", ".join(there))


def _needed() -> frozenset[str]:
    """Of our own metadata: the beginning of each requirement is its name."""
    try:
        requirements = metadata.requires("switchtower") or []
    except metadata.PackageNotFoundError:
        return frozenset(_LIBRARIES)
    names = (requirement.split(";")[0] for requirement in requirements if "extra ==" not in requirement)
    return frozenset("".join(c if c.isalnum() or c in "-_." else " " for c in name).split()[0].lower() for name in names)


def _sqlite() -> finding.Finding:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        return finding.fail(
            "sqlite", sqlite3.sqlite_version, f"use a Python with SQLite {'.'.join(map(str, OLDEST_SQLITE))} or newer"
        )
    return finding.ok("sqlite", sqlite3.sqlite_version)


def _program(name: str, without: str, remedy: str) -> finding.Finding:
    path = installed.path_of(name)
    if path is None:
        return finding.warn(name, f"not installed: {without}", remedy)
    return finding.ok(name, f"{_version(path)} at {path}")


def _node() -> finding.Finding:
    path = installed.path_of("node")
    return finding.ok("node", f"{_version(path)} at {path}" if path else "not installed; only building the page needs it")


def _version(path: str) -> str:
    try:
        ended = subprocess.run(  # noqa: S603
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return "does not say its version"
    words = ended.stdout.decode(errors="replace").split("\n")[0].split()
    return next((word for word in words if any(c.isdigit() for c in word)), "does not say its version")


def _clock() -> finding.Finding:
    now = time.time()
    said = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now))
    if now < _WRITTEN_IN:
        return finding.fail("clock", said, "set the clock: expiries of logins and approvals depend on it")
    return finding.ok("clock", said)


def disk(settings: config.Settings) -> finding.Finding:
    place = next(part for part in (settings.data_dir, *settings.data_dir.parents) if part.exists())
    try:
        free = shutil.disk_usage(place).free
    except OSError as problem:
        return finding.warn("disk", f"{place}: {problem.strerror}", "see whether the disk is there")
    detail = f"{amounts.size(free)} free at {_shortest(place)}"
    if free < NO_SPACE:
        return finding.fail("disk", detail, "make room: without it nothing can be journalled, so nothing runs")
    if free < LITTLE_SPACE:
        return finding.warn("disk", detail, "make room, or keep less with `tower config set retention_days 7`")
    return finding.ok("disk", detail)


def _shortest(place: Path) -> str:
    try:
        return f"~/{place.relative_to(Path.home())}"
    except ValueError:
        return str(place)
