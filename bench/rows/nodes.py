"""Several nodes on one PostgreSQL. This file only starts the server, and puts the parts in order.

Without a server here there are no rows. All processes share this machine: with two cores, more nodes are not more power.
"""

from collections.abc import Iterator

from bench.row import Row
from bench.rows import nodes_delivery, nodes_forward, nodes_journal, nodes_scaling, nodes_takeover
from bench.setting import Setting
from switchtower.testing import postgres_server as servers


def measure(setting: Setting) -> Iterator[Row]:
    if reason := servers.missing():
        setting.say(f"nodes: {reason}")
        return
    with servers.running() as server:
        yield from nodes_journal.measure(setting, server.dsn("postgres"))
        for rows in (nodes_delivery, nodes_forward, nodes_scaling, nodes_takeover):
            yield from rows.measure(setting, server)
