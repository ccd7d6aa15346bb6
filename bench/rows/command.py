"""What a command costs before it does anything."""

import subprocess
import sys
import time
from collections.abc import Iterator

from bench import processes
from bench.row import Row, compare
from bench.setting import BenchContext


def measure(setting: BenchContext) -> Iterator[Row]:
    figures = setting.alternate_rounds(
        "tower --help",
        lambda: _measure_milliseconds("-m", "switchtower", "--help"),
        lambda: _measure_milliseconds("-c", "pass"),
        unit=" ms",
    )
    yield compare("command", "tower --help", "ms", *figures, "python -c pass")


def _measure_milliseconds(*arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=processes.ROOT, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - began) * 1_000
