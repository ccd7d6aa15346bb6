"""The journal in PostgreSQL by itself: durable events a second, and how long one small append takes when nobody else writes.

The baseline gets as many events of as many sessions in as many commits as ours took.
"""

from collections.abc import Iterator
from statistics import mean
from typing import Any

from bench.row import Row, compare
from bench.setting import BenchContext

BASELINE = "bare batched inserts, the same library, events and batches, a row each"
CASES = (
    ("64 in flight", 64, 200, 1),
    ("1,000 sessions", 1_000, 30, 1),
    ("50 sessions, streamed", 50, 60, 20),
)


def measure(setting: BenchContext, dsn: str) -> Iterator[Row]:
    for title, sessions, appends, length in CASES:
        yield _measure_events(setting, dsn, title, sessions, setting.scale_amount(appends), length)
    yield _measure_alone(setting, dsn, setting.scale_amount(300))


def _measure_events(setting: BenchContext, dsn: str, title: str, sessions: int, appends: int, length: int) -> Row:
    name = f"PostgreSQL: durable events, {title}"
    count = sessions * appends * length
    last: dict[str, Any] = {}
    sizes: list[float] = []

    def ours() -> float:
        last.update(_load(setting, dsn, sessions, appends, length))
        sizes.append(count / last["commits"])
        return float(last["per_second"])

    def bare() -> float:
        batch = max(1, round(count / last["commits"]))
        return float(_measure_bare(setting, dsn, sessions, count, batch, streamed=length > 1)["per_second"])

    figures = setting.alternate_rounds(name, ours, bare)
    return compare("nodes", name, "/s", *figures, BASELINE, at_least=0.5, detail={"events_per_commit": round(mean(sizes), 1)})


def _measure_alone(setting: BenchContext, dsn: str, appends: int) -> Row:
    name = "PostgreSQL: durable events, sequential"
    figures = setting.alternate_rounds(
        name,
        lambda: float(_load(setting, dsn, 1, appends, 1)["per_second"]),
        lambda: float(_measure_bare(setting, dsn, 1, appends, 1, streamed=False)["per_second"]),
    )
    return compare("nodes", name, "/s", *figures, BASELINE, at_least=0.5)


def _load(setting: BenchContext, dsn: str, sessions: int, appends: int, length: int) -> Any:
    label = setting.make_path("label").name
    return setting.run_load("postgres", dsn=dsn, sessions=sessions, appends=appends, length=length, label=label)


def _measure_bare(setting: BenchContext, dsn: str, sessions: int, count: int, batch: int, *, streamed: bool) -> Any:
    return setting.run_baseline("postgres", dsn=dsn, sessions=sessions, count=count, batch=batch, streamed=streamed)
