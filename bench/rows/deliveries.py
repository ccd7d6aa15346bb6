"""Deliveries: one engine streams, and every subscriber is sent every event. All of it: engine, commit, encoding, sockets.

The bare loop has its bytes ready and waits for no disk, and writes each event as it comes. Two more comparisons, for reading:
a loop that writes whole batches, cut as ours were; and one that commits each such batch before it writes it, as no daemon that
keeps our first promise can avoid.
"""

from collections.abc import Iterator

from bench import commits
from bench.row import Row, compare
from bench.setting import BenchContext

BASELINE = "bare loop writing each event to as many sockets"
BASELINE_BATCHED = "bare loop writing the same bytes in batches as large as ours"
BASELINE_DURABLE = "bare loop that commits each batch, then writes it"
CASES = ((1, 40_000), (20, 20_000), (200, 5_000))


def measure(setting: BenchContext) -> Iterator[Row]:
    for subscribers, count in CASES:
        yield from _measure_case(setting, subscribers, setting.scale_amount(count))


def _measure_case(setting: BenchContext, subscribers: int, deltas: int) -> Iterator[Row]:
    name = f"deliveries to {subscribers} socket{'s' * (subscribers > 1)}"
    batches: list[int] = []
    cpu: dict[str, list[float]] = {"ours": [], "bare": []}
    batched: list[float] = []
    durable: list[float] = []
    arguments = {"subscribers": subscribers, "order": f"stream {deltas}", "deltas": deltas}
    with setting.start_daemon_under_test() as server:

        def ours() -> float:
            nonlocal batches
            before = server.measure_cpu_seconds()
            found = setting.run_load("fanout", socket=server.socket, **arguments)
            cpu["ours"].append((server.measure_cpu_seconds() - before) / (subscribers * deltas) * 1e6)
            path = setting.make_path("report.json")
            setting.run_load("report", socket=server.socket, report_path=str(path))
            batches = [commit.deltas for commit in commits.select_streaming(commits.read(path))]
            return float(found["deliveries_per_second"])

        def bare() -> float:
            # The last chunk also has the end of the run, for which the load waits.
            chunks = [*batches[:-1], batches[-1] + 1]
            with setting.start_baseline("broadcast", batches=chunks) as loop:
                batched.append(float(setting.run_load("fanout", socket=loop.socket, **arguments)["deliveries_per_second"]))
            with setting.start_baseline("broadcast", batches=[1] * sum(chunks)) as loop:
                before = loop.measure_cpu_seconds()
                found = setting.run_load("fanout", socket=loop.socket, **arguments)
                cpu["bare"].append((loop.measure_cpu_seconds() - before) / (subscribers * deltas) * 1e6)
            with setting.start_baseline("broadcast", batches=chunks, journal=str(setting.make_path("bare.db"))) as loop:
                durable.append(float(setting.run_load("fanout", socket=loop.socket, **arguments)["deliveries_per_second"]))
            return float(found["deliveries_per_second"])

        figures = setting.alternate_rounds(name, ours, bare)
    detail = {
        "events_per_commit": round(deltas / len(batches), 1),
        "server_cpu_us_per_delivery": {side: round(sorted(spent)[len(spent) // 2], 2) for side, spent in cpu.items()},
    }
    yield compare("deliveries", name, "/s", *figures, BASELINE, at_least=0.5, detail=detail)
    yield compare("deliveries", f"{name}, against ready batches", "/s", figures[0], batched, BASELINE_BATCHED)
    yield compare("deliveries", f"{name}, against commit + write", "/s", figures[0], durable, BASELINE_DURABLE)
