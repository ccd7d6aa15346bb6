"""From one version to the next, node by node, while people work: old and new nodes work side by side, and nothing is lost."""

from pathlib import Path

from tests.nodes import upgrade
from tests.nodes.conftest import StartFleet
from tests.nodes.ledger import ClusterOracle
from tests.nodes.people import LoadGenerator

import switchtower

PEOPLE = 4
LEASE = 2.0
SHORT = 4.0


async def test_nodes_are_replaced_one_by_one_by_the_next_version_under_load(
    start_cluster: StartFleet, folder: Path, nodes_seed: int
) -> None:
    print(f"--nodes-seed {nodes_seed}")
    source = upgrade.make_next_version(folder)
    fleet = await start_cluster(node_lease=LEASE)
    ledger = ClusterOracle(fleet.workspace)
    people = LoadGenerator(fleet, ledger, nodes_seed, SHORT)
    try:
        people.start(PEOPLE)
        await ledger.wait_for_progress(10)
        for number, node in enumerate(fleet.nodes, start=1):
            await upgrade.drain(fleet, node)
            assert await node.stop() == 0
            node.source = source
            await node.start()
            await fleet.wait_until(fleet.wait_until_joined, "the new node is among them")
            versions = sorted(found.version for found in (await fleet.list_alive()).values())
            assert versions == sorted([switchtower.__version__] * (len(fleet.nodes) - number) + [upgrade.NEXT] * number)
            await ledger.wait_for_progress(12)
            people.check()
        await people.finish()
        await ledger.check(fleet)
        assert [bug for node in fleet.nodes for bug in node.bugs] == []
        assert await fleet.ask_database("SELECT to_regclass($1)::text", f"tower.{upgrade.TABLE}")
    finally:
        await people.stop()
    print(f"{len(ledger.stories)} sessions, {sum(map(len, ledger.logs.values()))} events, {dict(ledger.seen)}")
