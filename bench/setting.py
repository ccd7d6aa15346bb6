"""What all rows share: how many rounds, how much work in each, where files go, and where progress is told."""

import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench import processes
from bench.processes import Server

LATE = 200.0
"""A run takes less than five minutes; on a machine so busy that it is behind by now, the rest gets three rounds a row."""


class BenchContext:
    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder = folder
        """On a real disk, and the same one for us and for the baselines."""
        self.rounds = 1 if quick else 5
        self.quick = quick
        self._numbers = itertools.count(1)
        self._started = time.monotonic()

    def scale_amount(self, full: int) -> int:
        """The work of one round: all of it, or a tenth in a quick run."""
        return max(1, full // 10) if self.quick else full

    def print_progress(self, text: str) -> None:
        print(f"[{time.monotonic() - self._started:5.1f} s] {text}", file=sys.stderr, flush=True)

    def make_path(self, name: str) -> Path:
        """A path that nobody has used yet."""
        return self.folder / f"{next(self._numbers)}-{name}"

    def start_daemon_under_test(self, **variables: str) -> Server:
        """The daemon under test, in a fresh home."""
        return processes.start_daemon(self.make_path("home"), ["-m", "bench.subject"], variables)

    def start_daemon(self, home: Path, **variables: str) -> Server:
        """The daemon as users have it, in this home."""
        return processes.start_daemon(home, ["-m", "switchtower", "serve"], variables)

    def start_baseline(self, name: str, **arguments: Any) -> Server:
        """A bare server on a Unix socket. It is told where to listen, and the rest as JSON."""
        socket = self.make_path("sock")
        return processes.start(["-m", f"bench.baselines.{name}", str(socket), _encode(arguments)], socket)

    def run_load(self, name: str, **arguments: Any) -> Any:
        """Runs one load to its end; what it found out."""
        return processes.ask(["-m", f"bench.loads.{name}", _encode(arguments)])

    def run_baseline(self, name: str, **arguments: Any) -> Any:
        """Runs one baseline that is no server; what it found out."""
        return processes.ask(["-m", f"bench.baselines.{name}", _encode(arguments)])

    def alternate_rounds(
        self, title: str, ours: Callable[[], float], baseline: Callable[[], float], *, unit: str = "/s"
    ) -> tuple[list[float], list[float]]:
        """Short rounds, one of ours, one of the baseline's, so that a slow minute of the machine falls on both."""
        figures: tuple[list[float], list[float]] = ([], [])
        late = time.monotonic() - self._started > LATE
        rounds = min(3, self.rounds) if late else self.rounds
        for number in range(rounds):
            figures[0].append(ours())
            figures[1].append(baseline())
            last = f"ours {figures[0][-1]:,.1f}{unit}, bare {figures[1][-1]:,.1f}{unit}"
            self.print_progress(f"{title}: round {number + 1} of {rounds}, {last}")
        return figures


def _encode(arguments: dict[str, Any]) -> str:
    return msgspec.json.encode(arguments).decode()
