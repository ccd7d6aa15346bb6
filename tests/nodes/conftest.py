"""Several nodes on one PostgreSQL, as real processes. `--nodes-rounds N` and `--nodes-seed S`, or NODES_ROUNDS and NODES_SEED.

The flags are known when this folder is named on the command line; the variables always are.
"""

import itertools
import os
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.nodes import fleet as fleets
from tests.nodes.fleet import ProcessCluster

from switchtower.stores.postgres import database
from switchtower.testing import postgres_server as servers
from switchtower.testing.postgres_server import PostgresServer

pytest.register_assert_rewrite("tests.crash.story", "tests.nodes.ledger", "tests.nodes.people", "tests.nodes.faults")

ROUNDS = 50

StartFleet = Callable[..., Awaitable[ProcessCluster]]

_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nodes")
    group.addoption("--nodes-rounds", type=int, help=f"how often something fails [default: {ROUNDS}]")
    group.addoption("--nodes-seed", type=int, help="where the randomness of these tests begins")


@pytest.fixture(scope="session")
def nodes_rounds(pytestconfig: pytest.Config) -> int:
    return int(pytestconfig.getoption("nodes_rounds", None) or os.environ.get("NODES_ROUNDS") or ROUNDS)


@pytest.fixture(scope="session")
def nodes_seed(pytestconfig: pytest.Config) -> int:
    given = pytestconfig.getoption("nodes_seed", None) or os.environ.get("NODES_SEED")
    return int(given) if given else random.SystemRandom().randrange(1_000_000)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[PostgresServer]:
    if reason := servers.find_missing_reason():
        pytest.skip(reason)
    with servers.run_server() as server:
        yield server


@pytest.fixture
def dedicated_server() -> Iterator[PostgresServer]:
    """For who stops it."""
    if reason := servers.find_missing_reason():
        pytest.skip(reason)
    with servers.run_server() as server:
        yield server


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name, because the paths of sockets must be short."""
    made = Path(tempfile.mkdtemp(prefix="tn-", dir="/tmp"))
    yield made
    for log in sorted(made.glob("*/logs/tower.log")):
        print(f"The end of the log of {log.parents[1].name}:", *log.read_text().splitlines()[-80:], sep="\n")
    shutil.rmtree(made, ignore_errors=True)


async def make_database(server: PostgresServer) -> str:
    """Empty: the nodes that start on it make its tables, all at once."""
    name = f"tower_{next(_numbers)}"
    administrator = await database.connect(server.make_dsn("postgres"))
    await administrator.execute(f"CREATE DATABASE {name}")
    await administrator.close()
    return name


@pytest.fixture
async def start_cluster(shared_server: PostgresServer, folder: Path) -> AsyncIterator[StartFleet]:
    """`start_fleet(3, node_lease=1)`: nodes on a database of their own, which end with the test."""
    started: list[ProcessCluster] = []

    async def start(count: int = fleets.COUNT, **settings: object) -> ProcessCluster:
        fleet = ProcessCluster(shared_server, await make_database(shared_server), folder, **settings)
        started.append(fleet)
        await fleet.start(count)
        return fleet

    yield start
    for fleet in started:
        await fleet.close()
