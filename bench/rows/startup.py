"""From starting the command to listening, and how much memory that takes."""

import os
import subprocess
import sys
from collections.abc import Iterator

from bench import processes
from bench.row import Row, compare
from bench.setting import BenchContext

BASELINE = "bare Python importing the same libraries"


def measure(setting: BenchContext) -> Iterator[Row]:
    names = setting.make_path("modules.txt")
    environment = os.environ | {"TOWER_HOME": str(setting.make_path("home")), "TOWER_HTTP": "127.0.0.1:0"}
    command = [sys.executable, "-m", "bench.baselines.modules", str(names)]
    subprocess.run(command, env=environment, cwd=processes.ROOT, check=True)
    memory: dict[str, list[float]] = {"ours": [], "bare": []}

    def ours() -> float:
        with setting.start_daemon(setting.make_path("home")) as server:
            memory["ours"].append(server.measure_resident_mb())
            return server.seconds_to_listening * 1_000

    def bare() -> float:
        socket = setting.make_path("sock")
        with processes.start(["bench/baselines/imports.py", str(socket), str(names)], socket) as server:
            memory["bare"].append(server.measure_resident_mb())
            return server.seconds_to_listening * 1_000

    figures = setting.alternate_rounds("time to listening", ours, bare, unit=" ms")
    libraries = {"modules": len(names.read_text().split())}
    yield compare("startup", "time to listening", "ms", *figures, BASELINE, at_most=1.5, detail=libraries)
    yield compare("startup", "resident memory", "MB", memory["ours"], memory["bare"], BASELINE, at_most=2.0)
