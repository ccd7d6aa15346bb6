"""One, two and three nodes under the same load each: durable events a second of the whole tower.

Bare is as many processes that insert as many events in batches, at once. On a machine with fewer cores than processes both
show what the machine has, and their ratio is the figure; more nodes can only be faster where there are cores for them.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench import commits, tower
from bench.row import Row, compare
from bench.setting import BenchContext
from switchtower.testing.postgres_server import PostgresServer

BASELINE = "as many processes with bare batched inserts, as many events, a row each"
ONE_NODE = "one node of the same run"
CASES = (("64 in flight on each", 64, "each", 100, (1, 2, 3)), ("50 streams on each", 50, "burst", 2_000, (1, 3)))
"""Sessions of a node, how many events each has, and on how many nodes. In flight: the next is said when the last is on the disk.
Streams: the next is said as soon as the desk takes it, as a model's text is; neighbours committed together share a row."""
START_NS = 1_500_000_000
"""All bare processes are there by then."""


def measure(setting: BenchContext, server: PostgresServer) -> Iterator[Row]:
    for title, sessions, order, each, counts in CASES:
        yield from _measure_case(setting, server, title, sessions, order, setting.scale_amount(each), counts)


def _measure_case(
    setting: BenchContext, server: PostgresServer, title: str, sessions: int, order: str, each: int, counts: tuple[int, ...]
) -> Iterator[Row]:
    alone: list[float] = []
    for count in counts:
        name = f"durable events of {count} node{'s' if count > 1 else ''}, {title}"
        with tower.run_nodes(setting, server, count) as (nodes, dsn):
            sockets = [node.socket for node in nodes]

            def ours(sockets: list[str] = sockets) -> float:
                paths = [setting.make_path("report.json") for _ in sockets]
                reports = [str(path) for path in paths]
                setting.run_load(
                    "tower_bursts", sockets=sockets, sessions=sessions, order=f"{order} {each}", report_paths=reports
                )
                return _compute_rate([commits.select_streaming(commits.read(path)) for path in paths])

            def bare(dsn: str = dsn, count: int = count) -> float:
                return _measure_bare(setting, dsn, count, sessions, each, streams=order == "burst")

            figures = setting.alternate_rounds(name, ours, bare)
        alone = alone or figures[0]
        cores = {"cores": os.cpu_count()}
        # What an event costs a daemon besides its journal is the same on SQLite; the journal's own rows have the mark.
        yield compare("nodes", name, "/s", *figures, BASELINE, detail=cores)
        if count > 1:
            yield compare("nodes", f"{name}, against one", "/s", figures[0], alone, ONE_NODE, detail=cores)


def _compute_rate(of_nodes: list[list[commits.Commit]]) -> float:
    """What was stored after the first commit of any node, over the time since then."""
    began_ns, ended_ns = min(noted[0].at_ns for noted in of_nodes), max(noted[-1].at_ns for noted in of_nodes)
    after = [commit for noted in of_nodes for commit in noted if commit.at_ns > began_ns]
    return sum(stretch.count for commit in after for stretch in commit.stretches) / (ended_ns - began_ns) * 1e9


def _measure_bare(setting: BenchContext, dsn: str, processes: int, sessions: int, each: int, *, streams: bool) -> float:
    begin_ns = time.monotonic_ns() + START_NS
    # As many as are in flight; a stream has as many at hand as a batch of ours takes.
    batch = 512 if streams else sessions

    def one(number: int) -> Any:
        first_sid = number * 1_000_000 + int(setting.make_path("sid").name.partition("-")[0]) * 1_000
        place = {"sessions": sessions, "first_sid": first_sid, "begin_ns": begin_ns}
        return setting.run_baseline("postgres", dsn=dsn, count=sessions * each, batch=batch, streamed=True, **place)

    with ThreadPoolExecutor(processes) as pool:
        found = list(pool.map(one, range(processes)))
    took_ns = max(process["ended_ns"] for process in found) - min(process["began_ns"] for process in found)
    return processes * sessions * each / float(took_ns) * 1e9
