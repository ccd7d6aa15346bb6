"""From the disk to a subscriber's ear, and from an engine's word to it: emitted, committed, written, received.

One event at a time, with pauses. The first is what delivering adds to a commit; the second has the commit in it.
"""

from collections.abc import Iterator

from bench import commits
from bench.row import Row, compare, compute_percentile
from bench.setting import BenchContext

BASELINE = "bare SQLite, one event a commit, with the same pauses"
EVENTS = 300
PAUSE_US = 2_000


def measure(setting: BenchContext) -> Iterator[Row]:
    target = setting.make_path("bare.db")
    count = setting.scale_amount(EVENTS)
    ours: dict[str, list[float]] = {"p50": [], "p99": []}
    bare: dict[str, list[float]] = {"p50": [], "p99": []}
    after_commit: dict[str, list[float]] = {"p50": [], "p99": []}
    with setting.start_daemon_under_test() as server:

        def round_of_ours() -> float:
            path = setting.make_path("report.json")
            arrived_ns = setting.run_load(
                "arrivals", socket=server.socket, order=f"paced {count} {PAUSE_US}", report_path=str(path)
            )
            report = commits.read(path)
            delays = [(arrived - emitted) / 1_000 for emitted, arrived in zip(report.emitted_ns, arrived_ns, strict=True)]
            on_disk = [commit.at_ns for commit in commits.select_streaming(report) if commit.deltas]
            _note(after_commit, [(arrived - at) / 1_000 for at, arrived in zip(on_disk, arrived_ns, strict=True)])
            _note(ours, delays)
            return after_commit["p50"][-1]

        def round_of_bare() -> float:
            _note(bare, setting.run_baseline("paced", target=str(target), count=count, pause_us=PAUSE_US))
            return bare["p50"][-1]

        setting.alternate_rounds("commit to delivery, p50", round_of_ours, round_of_bare, unit=" µs")
    for share in ("p50", "p99"):
        name = f"commit to delivery, {share}"
        yield compare("latency", name, "µs", after_commit[share], bare[share], BASELINE, at_most=1.5)
    for share in ("p50", "p99"):
        yield compare("latency", f"emit to delivery, {share}", "µs", ours[share], bare[share], BASELINE)


def _note(into: dict[str, list[float]], delays: list[float]) -> None:
    into["p50"].append(compute_percentile(delays, 0.5))
    into["p99"].append(compute_percentile(delays, 0.99))
