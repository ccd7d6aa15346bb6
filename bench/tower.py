"""A tower of several nodes for the bench: a database of its own on a given server, and as many daemons under test on it."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.processes import Server, read_cpu_seconds
from bench.setting import BenchContext
from switchtower.stores.postgres import database
from switchtower.testing.postgres_server import PostgresServer

_numbers = itertools.count(1)


def create_database(server: PostgresServer) -> str:
    name = f"bench_{next(_numbers)}"

    query_database(server.make_dsn("postgres"), f"CREATE DATABASE {name}")
    return server.make_dsn(name)


def query_database(dsn: str, query: str) -> int:
    async def asked() -> Any:
        connection = await database.connect(dsn)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return int(asyncio.run(asked()) or 0)


def count_commits(dsn: str) -> int:
    """Batches of all writers that are there."""
    return query_database(dsn, "SELECT sum(batch) FROM writers")


def log_bytes(dsn: str) -> int:
    """Where the write-ahead log is."""
    return query_database(dsn, "SELECT pg_current_wal_lsn() - '0/0'")


def measure_stored_bytes(dsn: str) -> int:
    return query_database(dsn, "SELECT pg_database_size(current_database())")


def count_connections(dsn: str) -> int:
    """Of the nodes; not the one that asks."""
    return query_database(dsn, "SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = current_database()")


@contextmanager
def run_nodes(setting: BenchContext, server: PostgresServer, count: int, **variables: str) -> Iterator[tuple[list[Server], str]]:
    """The nodes, and the address of their database."""
    dsn = create_database(server)
    with ExitStack() as stack:
        nodes = []
        for number in range(1, count + 1):
            named = {"TOWER_STORE": dsn, "TOWER_NODE_NAME": f"node{number}", **variables}
            nodes.append(stack.enter_context(setting.start_daemon_under_test(**named)))
        yield nodes, dsn


def measure_database_cpu(server: PostgresServer) -> float:
    """What the server and all of its processes have used so far."""
    postmaster = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    spent = read_cpu_seconds(postmaster, with_ended_children=True)
    for pid in map(int, children):
        with suppress(OSError):  # it ended meanwhile
            spent += read_cpu_seconds(pid)
    return spent
