"""Durable events: engines inside the real runtime stream as fast as they are let, and nobody listens.

Counted from the first commit with text to the last one. The baseline repeats exactly these commits.
"""

from collections.abc import Iterator
from statistics import mean

from bench import commits
from bench.commits import Commit
from bench.repeat import repeat
from bench.row import Row, compare
from bench.setting import BenchContext

BASELINE = "bare SQLite, the same events in the same commits, a row each"
CASES = (
    ("1 session", 1, "burst", 40_000),
    ("50 sessions", 50, "burst", 2_000),
    ("64 in flight", 64, "each", 120),
)


def measure(setting: BenchContext) -> Iterator[Row]:
    for title, sessions, order, count in CASES:
        yield _measure_case(setting, title, sessions, f"{order} {setting.scale_amount(count)}")


def _measure_case(setting: BenchContext, title: str, sessions: int, order: str) -> Row:
    name = f"durable events, {title}"
    target = setting.make_path("bare.db")
    recorded: list[Commit] = []
    sizes: list[float] = []
    with setting.start_daemon_under_test() as server:

        def ours() -> float:
            nonlocal recorded
            path = setting.make_path("report.json")
            setting.run_load("bursts", socket=server.socket, sessions=sessions, order=order, report_path=str(path))
            recorded = commits.select_streaming(commits.read(path))
            sizes.append(commits.compute_mean_batch(recorded))
            return commits.compute_event_rate(recorded, [commit.at_ns for commit in recorded])

        def bare() -> float:
            return commits.compute_event_rate(recorded, repeat(setting, server, target, recorded))

        figures = setting.alternate_rounds(name, ours, bare)
    return compare("durable", name, "/s", *figures, BASELINE, at_least=0.6, detail={"events_per_commit": round(mean(sizes), 1)})
