"""Commands for a session that lives on another node: given at one, decided at its home, answered where they were given.

A command that is refused needs no commit, so it shows the way there and back alone. Beside each stands the same command given
at the home itself, for reading.
"""

from collections.abc import Iterator
from typing import Any

from bench import tower
from bench.processes import Server
from bench.row import Row, compare
from bench.setting import BenchContext
from switchtower.testing.postgres_server import PostgresServer

BASELINE = "two uvloop processes joined by TCP that decode and encode the same frames with msgspec"
BASELINE_STORED = "the same, where the second inserts what came meanwhile as one batch before it answers"
AT_HOME = "the same command given at the session's home"
CASES = (("sequential", 1), ("64 in flight", 64))


def measure(setting: BenchContext, server: PostgresServer) -> Iterator[Row]:
    with tower.run_nodes(setting, server, 2) as (nodes, dsn):
        for what, database, baseline in (("refused", None, BASELINE), ("stored", dsn, BASELINE_STORED)):
            for title, in_flight in CASES:
                yield from _measure_case(setting, nodes, what, title, in_flight, database, baseline)


def _measure_case(
    setting: BenchContext, nodes: list[Server], what: str, title: str, in_flight: int, database: str | None, baseline: str
) -> Iterator[Row]:
    name = f"forwarded command, {what}, {title}"
    home, other = nodes
    arguments: dict[str, Any] = {"what": what, "in_flight": in_flight, "seconds": 0.3 if setting.quick else 1.0}
    at_home: list[float] = []

    def ours() -> float:
        found = setting.run_load("commands", socket=home.socket, far_socket=other.socket, **arguments)
        at_home.append(setting.run_load("commands", socket=home.socket, far_socket=home.socket, **arguments)["per_second"])
        return float(found["per_second"])

    with setting.start_baseline("forward", dsn=database) as bare:

        def passed_on() -> float:
            return float(setting.run_load("lines", socket=bare.socket, **arguments)["per_second"])

        figures = setting.alternate_rounds(name, ours, passed_on)
    yield compare("nodes", name, "/s", *figures, baseline, at_least=0.5)
    yield compare("nodes", f"{name}, against its home", "/s", figures[0], at_home, AT_HOME)
