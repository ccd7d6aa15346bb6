"""A node is killed in the middle of its runs: how long until another has written the first event of a next epoch.

There is nothing bare to compare with. What it is measured against is the lease: nobody may take a session sooner.
"""

from collections.abc import Iterator

from bench import tower
from bench.row import Row, compare
from bench.setting import BenchContext
from switchtower.testing.postgres_server import PostgresServer

BASELINE = "the lease, as configured"
PROMISED = 10.0 / 6.0
"""Within ten seconds with the default lease of six."""
CASES = ((2.0, 3), (6.0, 2))
SESSIONS = 20


def measure(setting: BenchContext, server: PostgresServer) -> Iterator[Row]:
    for lease, rounds in CASES[:1] if setting.quick else CASES:
        name = f"takeover after SIGKILL, lease {lease:g} s"
        first: list[float] = []
        last: list[float] = []
        for number in range(1 if setting.quick else rounds):
            with tower.run_nodes(setting, server, 3, TOWER_NODE_LEASE=str(lease)) as (nodes, dsn):
                found = setting.run_load("takeover", socket=nodes[0].socket, pid=nodes[0].pid, dsn=dsn, sessions=SESSIONS)
            first.append(found["first"])
            last.append(found["last"])
            setting.print_progress(f"{name}: round {number + 1}, first {first[-1]:.2f} s, last {last[-1]:.2f} s")
        of_all = f"the last of {SESSIONS} sessions"
        yield compare("nodes", f"{name}, first session", "s", first, [lease] * len(first), BASELINE, at_most=PROMISED)
        yield compare("nodes", f"{name}, {of_all}", "s", last, [lease] * len(last), BASELINE, at_most=PROMISED)
