"""Durable events: engines inside the real runtime stream as fast as they are let, and nobody listens.

Counted from the first commit with text to the last one. The baseline repeats exactly these commits.
"""

from collections.abc import Iterator
from statistics import mean

from bench import commits
from bench.commits import Commit
from bench.repeat import repeat
from bench.row import Row, compare
from bench.setting import Setting

BASELINE = "bare SQLite, the same events in the same commits, a row each"
CASES = (
    ("1 session", 1, "burst", 40_000),
    ("50 sessions", 50, "burst", 2_000),
    ("64 in flight", 64, "each", 120),
)


def measure(setting: Setting) -> Iterator[Row]:
    for title, sessions, order, count in CASES:
        yield _case(setting, title, sessions, f"{order} {setting.amount(count)}")


def _case(setting: Setting, title: str, sessions: int, order: str) -> Row:
    name = f"durable events, {title}"
    target = setting.path("bare.db")
    recorded: list[Commit] = []
    sizes: list[float] = []
    with setting.subject() as server:

        def ours() -> float:
            nonlocal recorded
            path = setting.path("report.json")
            setting.load("bursts", socket=server.socket, sessions=sessions, order=order, report_path=str(path))
            recorded = commits.streaming(commits.read(path))
            sizes.append(commits.mean_batch(recorded))
            return commits.events_per_second(recorded, [commit.at_ns for commit in recorded])

        def bare() -> float:
            return commits.events_per_second(recorded, repeat(setting, server, target, recorded))

        figures = setting.alternate(name, ours, bare)
    return compare("durable", name, "/s", *figures, BASELINE, at_least=0.6, detail={"events_per_commit": round(mean(sizes), 1)})
