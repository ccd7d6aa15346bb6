"""From an engine's word to a subscriber's ear: emitted, committed, written, received. One event at a time, with pauses."""

from collections.abc import Iterator
from statistics import median

from bench import commits
from bench.row import Row, compare, percentile
from bench.setting import Setting

BASELINE = "bare SQLite, one event a commit, with the same pauses"
EVENTS = 300
PAUSE_US = 2_000


def measure(setting: Setting) -> Iterator[Row]:
    target = setting.path("bare.db")
    count = setting.amount(EVENTS)
    ours: dict[str, list[float]] = {"p50": [], "p99": []}
    bare: dict[str, list[float]] = {"p50": [], "p99": []}
    after_commit: list[float] = []
    with setting.subject() as server:

        def round_of_ours() -> float:
            path = setting.path("report.json")
            arrived_ns = setting.load("arrivals", socket=server.socket, order=f"paced {count} {PAUSE_US}", report_path=str(path))
            report = commits.read(path)
            delays = [(arrived - emitted) / 1_000 for emitted, arrived in zip(report.emitted_ns, arrived_ns, strict=True)]
            on_disk = [commit.at_ns for commit in commits.streaming(report) if commit.deltas]
            after_commit.append(median((arrived - at) / 1_000 for at, arrived in zip(on_disk, arrived_ns, strict=True)))
            _note(ours, delays)
            return ours["p50"][-1]

        def round_of_bare() -> float:
            _note(bare, setting.bare("paced", target=str(target), count=count, pause_us=PAUSE_US))
            return bare["p50"][-1]

        setting.alternate("emit to delivery, p50", round_of_ours, round_of_bare, unit=" µs")
    detail = {"of_which_after_the_commit_us": round(median(after_commit))}
    for share in ("p50", "p99"):
        name = f"emit to delivery, {share}"
        yield compare("latency", name, "µs", ours[share], bare[share], BASELINE, at_most=1.5, detail=detail)


def _note(into: dict[str, list[float]], delays: list[float]) -> None:
    into["p50"].append(percentile(delays, 0.5))
    into["p99"].append(percentile(delays, 0.99))
