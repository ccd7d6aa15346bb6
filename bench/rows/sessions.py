"""New sessions: asked for by one client, answered when they are on the disk."""

from collections.abc import Iterator

from bench import commits
from bench.commits import Commit
from bench.repeat import repeat
from bench.row import Row, compare
from bench.setting import Setting

BASELINE = "bare SQLite, the same rows in the same commits"
CASES = (("64 in flight", 64, 4_000), ("sequential", 1, 100))


def measure(setting: Setting) -> Iterator[Row]:
    for title, in_flight, count in CASES:
        yield _case(setting, f"new sessions, {title}", in_flight, setting.amount(count))


def _case(setting: Setting, name: str, in_flight: int, count: int) -> Row:
    target = setting.path("bare.db")
    recorded: list[Commit] = []
    with setting.subject() as server:

        def ours() -> float:
            nonlocal recorded
            path = setting.path("report.json")
            rate = setting.load("sessions", socket=server.socket, in_flight=in_flight, count=count, report_path=str(path))
            # The report itself begins with a session of its own, and then a run.
            recorded = [commit for commit in commits.read(path).commits if commit.sessions][:-1]
            return float(rate)

        def bare() -> float:
            at_ns = repeat(setting, server, target, recorded)
            return sum(commit.sessions for commit in recorded[1:]) / (at_ns[-1] - at_ns[0]) * 1e9

        figures = setting.alternate(name, ours, bare)
    detail = {"sessions_per_commit": round(count / len(recorded), 1)}
    return compare("sessions", name, "/s", *figures, BASELINE, at_least=0.4, detail=detail)
