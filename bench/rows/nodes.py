"""Several nodes on one PostgreSQL. This file only starts the server, and puts the parts in order.

Without a server here there are no rows. All processes share this machine: with two cores, more nodes are not more power.
"""

from collections.abc import Iterator

from bench.row import Row
from bench.rows import nodes_delivery, nodes_forward, nodes_journal, nodes_scaling, nodes_takeover
from bench.setting import BenchContext
from switchtower.testing import postgres_server as servers


def measure(setting: BenchContext) -> Iterator[Row]:
    if reason := servers.find_missing_reason():
        setting.print_progress(f"nodes: {reason}")
        return
    with servers.run_server() as server:
        yield from nodes_journal.measure(setting, server.make_dsn("postgres"))
        for rows in (nodes_delivery, nodes_forward, nodes_scaling, nodes_takeover):
            yield from rows.measure(setting, server)
