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
from bench.setting import Setting
from switchtower.testing.postgres_server import PostgresServer

BASELINE = "as many processes with bare batched inserts, as many events, a row each"
ONE_NODE = "one node of the same run"
SESSIONS = 64
EACH = 150
"""Events of a session: the next is said when the last is on the disk, so a node has as many in flight as it has sessions."""
START_NS = 1_500_000_000
"""All bare processes are there by then."""


def measure(setting: Setting, server: PostgresServer) -> Iterator[Row]:
    each = setting.amount(EACH)
    alone: list[float] = []
    for count in (1, 2, 3):
        name = f"durable events of {count} node{'s' if count > 1 else ''}, {SESSIONS} in flight on each"
        with tower.running(setting, server, count) as (nodes, dsn):
            sockets = [node.socket for node in nodes]

            def ours(sockets: list[str] = sockets) -> float:
                paths = [setting.path("report.json") for _ in sockets]
                order = {"sessions": SESSIONS, "order": f"each {each}", "report_paths": [str(path) for path in paths]}
                setting.load("tower_bursts", sockets=sockets, **order)
                return _rate([commits.streaming(commits.read(path)) for path in paths])

            def bare(dsn: str = dsn, count: int = count) -> float:
                return _bare(setting, dsn, count, SESSIONS * each)

            figures = setting.alternate(name, ours, bare)
        alone = alone or figures[0]
        cores = {"cores": os.cpu_count()}
        yield compare("nodes", name, "/s", *figures, BASELINE, at_least=0.5, detail=cores)
        if count > 1:
            yield compare("nodes", f"{count} nodes against one", "/s", figures[0], alone, ONE_NODE, detail=cores)


def _rate(of_nodes: list[list[commits.Commit]]) -> float:
    """All that was stored, from the first commit of any node to the last of any."""
    stored = sum(stretch.count for noted in of_nodes for commit in noted for stretch in commit.stretches)
    began_ns, ended_ns = min(noted[0].at_ns for noted in of_nodes), max(noted[-1].at_ns for noted in of_nodes)
    return stored / (ended_ns - began_ns) * 1e9


def _bare(setting: Setting, dsn: str, processes: int, events: int) -> float:
    begin_ns = time.monotonic_ns() + START_NS

    def one(number: int) -> Any:
        first_sid = number * 1_000_000 + int(setting.path("sid").name.partition("-")[0]) * 1_000
        place = {"sessions": SESSIONS, "first_sid": first_sid, "begin_ns": begin_ns}
        return setting.bare("postgres", dsn=dsn, count=events, batch=SESSIONS, streamed=True, **place)

    with ThreadPoolExecutor(processes) as pool:
        found = list(pool.map(one, range(processes)))
    took_ns = max(each["ended_ns"] for each in found) - min(each["began_ns"] for each in found)
    return processes * events / took_ns * 1e9
