"""A hundred clients on three nodes race for one approval: one wins, and all others hear that it is decided."""

import asyncio
import random

from tests.crash.tower_process import PushRequestRefused, RawPushClient
from tests.nodes.conftest import StartFleet

CLIENTS = 100


async def test_of_a_hundred_that_decide_at_once_on_three_nodes_one_wins_and_all_see_the_same(
    start_cluster: StartFleet, nodes_seed: int
) -> None:
    print(f"--nodes-seed {nodes_seed}")
    dice = random.Random(nodes_seed)
    fleet = await start_cluster()
    for home in fleet.nodes:
        starter, session_id = await fleet.start_session_on(home)
        run_id = await starter.send(session_id, f"write {home.name}.txt: {home.name}")
        lines: list[dict[int, bytes]] = []
        clients: list[RawPushClient] = []
        for number in range(CLIENTS):
            mine: dict[int, bytes] = {}
            lines.append(mine)
            clients.append(
                await fleet.connect(
                    fleet.nodes[number % len(fleet.nodes)],
                    on_event=lambda line, frame, mine=mine: mine.update({frame.seq: line}),
                )
            )
        await asyncio.gather(*(client.attach(session_id) for client in clients))
        asked = await asyncio.gather(*(client.wait_for_event("approval_required") for client in clients))
        assert len({frame.content["approvalId"] for frame in asked}) == 1
        approval_id = asked[0].content["approvalId"]

        verdicts = [dice.choice(["approve", "deny"]) for _ in clients]

        async def decide(client: RawPushClient, verdict: str) -> str | None:
            try:
                await client.decide(session_id, run_id, approval_id, verdict)  # noqa: B023 - used within the round
            except PushRequestRefused as refusal:
                return refusal.code
            return None

        order = list(zip(clients, verdicts, strict=True))
        dice.shuffle(order)
        outcomes = await asyncio.gather(*(decide(client, verdict) for client, verdict in order))
        assert outcomes.count(None) == 1, "exactly one wins"
        assert outcomes.count("APPROVAL_EXPIRED") == CLIENTS - 1, "all others hear that it is decided"
        won = order[outcomes.index(None)][1]

        decisions = await asyncio.gather(*(client.wait_for_event("approval_received") for client in clients))
        assert {frame.content["decision"] for frame in decisions} == {won}
        await asyncio.gather(*(client.wait_for_event("run_complete") for client in clients))
        assert all(told == lines[0] for told in lines), "all saw the same log, byte by byte"
        assert sorted(lines[0]) == list(range(1, len(lines[0]) + 1))
        assert sum(b'"type":"approval_received"' in line for line in lines[0].values()) == 1
        assert (fleet.workspace / f"{home.name}.txt").exists() is (won == "approve")
        for client in (starter, *clients):
            client.close()
