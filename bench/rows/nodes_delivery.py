"""From one node to a client of another: committed here, told by NOTIFY, read there, written to the client.

One event at a time, with pauses. The first two rows begin when the writer hears of its commit, which the other side may do as
early; the others at the engine's call, and have the commit in them. Bare is the same without a client behind it.
"""

from collections.abc import Iterator

from bench import commits, tower
from bench.row import Row, compare, compute_percentile
from bench.setting import BenchContext
from switchtower.testing.postgres_server import PostgresServer

BASELINE = "bare LISTEN/NOTIFY + SELECT between two processes, with the same pauses"
EVENTS = 300
PAUSE_US = 2_000
SHARES = {"p50": 0.5, "p99": 0.99}


def measure(setting: BenchContext, server: PostgresServer) -> Iterator[Row]:
    count = setting.scale_amount(EVENTS)
    figures: dict[str, list[float]] = {}

    def note(who: str, delays: list[float]) -> float:
        for share, part in SHARES.items():
            figures.setdefault(f"{who} {share}", []).append(compute_percentile(delays, part))
        return figures[f"{who} p50"][-1]

    with tower.run_nodes(setting, server, 2) as (nodes, dsn):
        near, far = nodes

        def ours() -> float:
            path = setting.make_path("report.json")
            order = f"paced {count} {PAUSE_US}"
            arrived_ns = setting.run_load(
                "far_arrivals", socket=near.socket, far_socket=far.socket, order=order, report_path=str(path)
            )
            report = commits.read(path)
            note("ours from emit", _compute_delay(report.emitted_ns, arrived_ns))
            on_disk = [commit.at_ns for commit in commits.select_streaming(report) if commit.deltas]
            return note("ours from commit", _compute_delay(on_disk, arrived_ns))

        def bare() -> float:
            delays = setting.run_baseline("tail", dsn=dsn, count=count, pause_us=PAUSE_US)
            note("bare from emit", delays["from_insert"])
            return note("bare from commit", delays["from_commit"])

        setting.alternate_rounds("commit to delivery across nodes, p50", ours, bare, unit=" µs")
    for start in ("commit", "emit"):
        for share in SHARES:
            ours_, bare_ = figures[f"ours from {start} {share}"], figures[f"bare from {start} {share}"]
            # Half of bare's speed is twice its time. The end to end rows are the steadier ones: they have no race in them.
            yield compare("nodes", f"{start} to delivery across nodes, {share}", "µs", ours_, bare_, BASELINE, at_most=2)


def _compute_delay(began_ns: list[int], ended_ns: list[int]) -> list[float]:
    return [(ended - began) / 1_000 for began, ended in zip(began_ns, ended_ns, strict=True)]
