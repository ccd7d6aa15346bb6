"""New sessions: asked for by one client, answered when they are on the disk.

The baseline commits each session by itself, as it is asked for. With many in flight we share commits among them; for reading,
there is a second comparison with a baseline that shares them just as ours did.
"""

from collections.abc import Iterator

from bench import commits
from bench.commits import Commit
from bench.repeat import repeat
from bench.row import Row, compare
from bench.setting import BenchContext

BASELINE = "bare SQLite, the same rows, a commit for each session"
BASELINE_SHARED = "bare SQLite, the same rows in the same commits"
ALONE = 1_000
"""Commits of one session each that a round of the baseline makes, at the most."""
CASES = (("64 in flight", 64, 4_000), ("sequential", 1, 100))


def measure(setting: BenchContext) -> Iterator[Row]:
    for title, in_flight, count in CASES:
        yield from _measure_case(setting, f"new sessions, {title}", in_flight, setting.scale_amount(count))


def _measure_case(setting: BenchContext, name: str, in_flight: int, count: int) -> Iterator[Row]:
    target = setting.make_path("bare.db")
    shared: list[float] = []
    recorded: list[Commit] = []
    with setting.start_daemon_under_test() as server:

        def ours() -> float:
            nonlocal recorded
            path = setting.make_path("report.json")
            rate = setting.run_load("sessions", socket=server.socket, in_flight=in_flight, count=count, report_path=str(path))
            # The report itself begins with a session of its own, and then a run.
            recorded = [commit for commit in commits.read(path).commits if commit.sessions][:-1]
            return float(rate)

        def bare() -> float:
            if in_flight > 1:
                shared.append(_compute_rate(recorded, repeat(setting, server, target, recorded)))
            alone = [Commit(0, [stretch], 0, 1) for commit in recorded for stretch in commit.stretches][:ALONE]
            return _compute_rate(alone, repeat(setting, server, setting.make_path("alone.db"), alone))

        figures = setting.alternate_rounds(name, ours, bare)
    detail = {"sessions_per_commit": round(count / len(recorded), 1)}
    yield compare("sessions", name, "/s", *figures, BASELINE, at_least=0.4, detail=detail)
    if shared:
        yield compare("sessions", f"{name}, against shared commits", "/s", figures[0], shared, BASELINE_SHARED)


def _compute_rate(repeated: list[Commit], at_ns: list[int]) -> float:
    return sum(commit.sessions for commit in repeated[1:]) / (at_ns[-1] - at_ns[0]) * 1e9
