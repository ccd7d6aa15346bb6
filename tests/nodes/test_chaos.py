"""Three nodes under load while one thing after the other fails: nothing that a client saw or was promised is lost or doubled."""

import asyncio
from pathlib import Path

import pytest
from tests.crash.tower_process import find_run_processes
from tests.nodes.conftest import make_database
from tests.nodes.faults import FaultInjector
from tests.nodes.fleet import ProcessCluster
from tests.nodes.ledger import ClusterOracle
from tests.nodes.minis import MiniCodexLoad
from tests.nodes.people import LoadGenerator

from switchtower.testing.postgres_server import PostgresServer

TOWERS = 4
PEOPLE = 6
MINIS = 2
LEASE = 1.5
SHORT = 2.5


@pytest.mark.parametrize("number", range(TOWERS))
async def test_nothing_is_lost_whatever_fails(
    dedicated_server: PostgresServer, folder: Path, number: int, nodes_rounds: int, nodes_seed: int
) -> None:
    rounds = -(-nodes_rounds // TOWERS)
    print(f"--nodes-seed {nodes_seed}, tower {number}, {rounds} rounds")
    fleet = ProcessCluster(dedicated_server, await make_database(dedicated_server), folder, node_lease=LEASE)
    ledger = ClusterOracle(fleet.workspace)
    people = LoadGenerator(fleet, ledger, nodes_seed + number, SHORT)
    minis = [MiniCodexLoad(fleet, ledger, people.dice, SHORT) for _ in range(MINIS)]
    faults = FaultInjector(fleet, ledger, nodes_seed + number, LEASE)
    try:
        await fleet.start()
        people.start(PEOPLE)
        for mini in minis:
            mini.start()
        for _ in range(rounds):
            kind = await faults.inject_fault()
            for workers in (people, *minis):
                workers.check()
            await ledger.check_density(fleet)
            print(kind, end="; ")
        await faults.wait_until_repaired()
        await asyncio.gather(*(workers.finish() for workers in (people, *minis)))
        await ledger.check(fleet)
        print(f"\n{len(ledger.stories)} sessions, {sum(map(len, ledger.logs.values()))} events, {dict(ledger.seen)}")
        assert await asyncio.gather(*(node.stop() for node in fleet.nodes)) == [0] * len(fleet.nodes)
        await ledger.check(fleet)
        assert [bug for node in fleet.nodes for bug in node.bugs] == []
    finally:
        for working in (people, *minis, faults):
            await working.stop()
        await fleet.close()
    run_ids = {message.run_id for message in ledger.messages.values() if message.run_id is not None}
    assert find_run_processes(run_ids) == {}, "no process is left behind"
    for what in ("raced", "sent twice", "taken up", "killed in a takeover", "woken", "MiniCodex runs"):
        assert ledger.seen[what] or rounds < 2 * len(faults.kinds), f"it never came to this: {what}"
