"""REP: a runtime's start, a trivial flow from end to end, polls, and what `tm` costs. `detail` has the public tool's figure."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench import processes
from bench.loads import rep
from bench.row import Row, compare
from bench.setting import BenchContext

NOTHING = "python -c pass, waited for"
BARE_ECHO = "a child that reads a line, json.loads, and writes a line"
TM = "from switchtower.cli.main import tm; tm()"
PROCESSES, COMMANDS = 15, 9


def measure(setting: BenchContext) -> Iterator[Row]:
    cwd = str(setting.folder)
    yield _measure_start(setting, "spawn + handshake", "handshake", public_tool_ms=44)
    yield _measure_start(setting, "trivial flow end to end", "trivial", public_tool_ms=88)
    seconds = 0.3 if setting.quick else 1.0
    figures = setting.alternate_rounds(
        "polls, sequential",
        lambda: float(setting.run_load("rep", what="polls", seconds=seconds, cwd=cwd)),
        lambda: float(setting.run_baseline("rep", what="polls", seconds=seconds, cwd=cwd)),
    )
    yield compare("rep", "polls, sequential", "/s", *figures, BARE_ECHO, detail={"public_tool": 9_200})
    yield _measure_command(setting, "tm --help", ["--help"], {})
    listed = ["runtime", "run", "--manifest", str(_write_manifest(setting)), "--flow", "bench"]
    yield _measure_command(setting, "tm runtime run", listed, {"public_tool_ms": 1_500})


def _measure_start(setting: BenchContext, name: str, what: str, *, public_tool_ms: int) -> Row:
    times, cwd = setting.scale_amount(PROCESSES), str(setting.folder)
    figures = setting.alternate_rounds(
        name,
        lambda: float(setting.run_load("rep", what=what, times=times, cwd=cwd)),
        lambda: float(setting.run_baseline("rep", what="spawn", times=times)),
        unit=" ms",
    )
    return compare("rep", name, "ms", *figures, NOTHING, detail={"public_tool_ms": public_tool_ms})


def _measure_command(setting: BenchContext, name: str, arguments: list[str], detail: dict[str, int]) -> Row:
    # A home of its own: what runtimes say of themselves is remembered there.
    home = {"HOME": str(setting.folder)}
    times = setting.scale_amount(COMMANDS)

    def ours() -> float:
        return _measure_milliseconds([sys.executable, "-P", "-c", TM, *arguments], home, times)

    def bare() -> float:
        return _measure_milliseconds([sys.executable, "-c", "pass"], home, times)

    return compare("rep", name, "ms", *setting.alternate_rounds(name, ours, bare, unit=" ms"), NOTHING, detail=detail)


def _measure_milliseconds(argv: list[str], variables: dict[str, str], times: int) -> float:
    """The shortest of a few: a command has nothing in it that varies but the neighbours."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    took = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(argv, cwd=processes.ROOT, env=environment | variables, capture_output=True, check=True)
        took.append(time.perf_counter() - began)
    return min(took) * 1_000


def _write_manifest(setting: BenchContext) -> Path:
    from switchtower.engines.flow import ir
    from switchtower.engines.flow.ir import manifest

    document = rep.make_flow("log", message="hello")
    place = setting.folder / "manifest.json"
    (setting.folder / "bench.json").write_bytes(msgspec.json.encode(document))
    manifest.write_manifest(place, [manifest.make_entry(ir.parse_flow(document), "bench.json")])
    return place
