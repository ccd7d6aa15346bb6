"""Results on disk: every row of a run with its rounds, and on what machine and commit it was made."""

import os
import platform
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.processes import ROOT
from bench.row import Row
from switchtower.testing import postgres_server

FOLDER = ROOT / "bench" / "results"
LIBRARIES = ("msgspec", "picows", "starlette", "uvicorn", "uvloop")


class Results(Struct):
    made_at: str
    commit: str
    quick: bool
    seconds: float
    machine: dict[str, str]
    versions: dict[str, str]
    rows: list[Row]


def collect(rows: list[Row], *, quick: bool, seconds: float) -> Results:
    return Results(
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=_commit(),
        quick=quick,
        seconds=round(seconds, 1),
        machine={
            "system": f"{platform.system()} {platform.release()}",
            "processor": _describe_processor(),
            "cores": str(os.cpu_count()),
            "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        },
        versions={
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            **{name: metadata.version(name) for name in LIBRARIES},
            **_describe_database(),
        },
        rows=rows,
    )


def write(results: Results) -> Path:
    """One file a run, and the same once more as `latest.json`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(results)) + b"\n"
    path = FOLDER / f"{results.made_at.replace(':', '').replace('+0000', 'Z')}.json"
    for target in (path, FOLDER / "latest.json"):
        target.write_bytes(encoded)
    return path


def read(path: Path) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results)


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _describe_database() -> dict[str, str]:
    """Where there is one."""
    programs = postgres_server.find_programs()
    return {"postgresql": programs.parent.name, "asyncpg": metadata.version("asyncpg")} if programs else {}


def _describe_processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
