"""Two nodes as somebody looks after them: who has what, one emptied and stopped, and what a load balancer hears of it."""

import asyncio
import os
import sys
from typing import Any
from urllib import request
from urllib.error import HTTPError

import msgspec
import pytest
from tests.cli.conftest import Ended
from tests.crash.tower_process import Client
from tests.nodes.conftest import StartFleet
from tests.nodes.fleet import Fleet, Node
from tests.warm import processes

from switchtower.testing.push_client import PushClient, Refused

PATIENCE = 60


async def tower(node: Node, *arguments: str) -> Ended:
    """A command at the node's own machine."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TOWER_", "PUSHD_"))}
    ended = await asyncio.to_thread(
        processes.run,
        [sys.executable, "-P", "-m", "switchtower", *arguments],
        input=b"",
        capture_output=True,
        cwd=node.home,
        env={**inherited, "TOWER_HOME": str(node.home)},
        timeout=PATIENCE,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr.decode())


async def fetched(node: Node, path: str) -> tuple[int, bytes]:
    def fetch() -> tuple[int, bytes]:
        try:
            with request.urlopen(node.endpoints["http"] + path, timeout=PATIENCE) as answer:
                return answer.status, answer.read()
        except HTTPError as refusal:
            return refusal.code, refusal.read()

    return await asyncio.to_thread(fetch)


async def node_of(fleet: Fleet, name: str) -> dict[str, Any]:
    known = (await tower(fleet.nodes[-1], "nodes", "--json")).json
    return next(dict(one) for one in known if one["name"] == name)


async def worked(client: Client, session_id: str, text: str) -> None:
    await client.ask("send_user_message", {"sessionId": session_id, "clientMessageId": "msg_1", "text": text})
    await client.event("run_complete", session_id=session_id)


async def test_every_node_tells_the_same_about_who_has_what(start_fleet: StartFleet) -> None:
    fleet = await start_fleet(2)
    a, b = fleet.nodes
    client_a, of_a = await fleet.session_on(a)
    client_b, of_b = await fleet.session_on(b)
    await worked(client_a, of_a, "say: one")
    await worked(client_b, of_b, "say: two")

    for node, mark in ((a, "a"), (b, "b")):
        listed = (await tower(node, "nodes", "--json")).json
        assert [(one["name"], one["alive"], one["draining"], one["sessions"]) for one in listed] == [
            ("a", True, False, 1),
            ("b", True, False, 1),
        ]
        assert [one["name"] for one in listed if one["isThis"]] == [mark]
        owned = (await tower(node, "nodes", "--sessions", "--json")).json
        assert {one["sessionId"]: one["node"] for one in owned} == {of_a: "a", of_b: "b"}
        sessions = (await tower(node, "sessions", "--json")).json
        assert {one["sessionId"]: one["node"] for one in sessions} == {of_a: "a", of_b: "b"}
        shown = (await tower(node, "show", of_a)).stdout.decode().splitlines()
        assert ["node:", "a"] in [line.split() for line in shown]
        status = (await tower(node, "status", "--json")).json
        assert (status["node"]["name"], status["node"]["alive"], status["node"]["homes"]) == (mark, 2, 1)
    client_a.close()
    client_b.close()


async def test_a_drained_node_is_empty_and_not_ready_and_what_waited_is_decided_elsewhere(start_fleet: StartFleet) -> None:
    fleet = await start_fleet(2)
    a, b = fleet.nodes
    client, session_id = await fleet.session_on(a)
    await client.ask("send_user_message", {"sessionId": session_id, "clientMessageId": "msg_1", "text": "run: echo hi"})
    await client.event("approval_required", session_id=session_id)
    assert f"{session_id} on a" in (await tower(b, "inbox")).stdout.decode()
    assert (await fetched(a, "/readyz"))[0] == 200

    drained = await tower(a, "drain", "--wait", "20")

    assert (drained.code, drained.stdout) == (0, b""), drained.stderr
    assert drained.stderr.startswith("draining a; runs have 20 s to end\n")
    assert drained.stderr.endswith("the node is empty: 1 session handed over\n")
    status, body = await fetched(a, "/readyz")
    assert (status, msgspec.json.decode(body)) == (503, {"ready": False, "reasons": ["the node is draining"]})
    assert b"switchtower_node_draining 1\n" in (await fetched(a, "/metrics"))[1]
    emptied = await node_of(fleet, "a")
    assert (emptied["alive"], emptied["draining"], emptied["sessions"]) == (True, True, 0)

    async def is_at_b() -> bool:
        return await fleet.home_of(session_id) is b

    await fleet.until(is_at_b, "the other node takes the session over")
    assert f"{session_id} on b" in (await tower(b, "inbox")).stdout.decode()
    assert (await tower(b, "approve", session_id)).code == 0

    again = await tower(a, "drain")
    assert (again.code, again.stderr.splitlines()[-1]) == (0, "the node is empty: 1 session handed over")
    client.close()


async def test_drain_with_stop_cuts_short_what_takes_too_long_and_ends_the_daemon(start_fleet: StartFleet) -> None:
    fleet = await start_fleet(2, demo_delay_ms=200)
    a, b = fleet.nodes
    client, session_id = await fleet.session_on(a)
    await client.ask("send_user_message", {"sessionId": session_id, "clientMessageId": "msg_1", "text": "count 1000"})
    await client.event("assistant_token", session_id=session_id)

    drained = await tower(a, "drain", "--wait", "0", "--stop")

    assert drained.code == 0, drained.stderr
    assert "1 run did not end in time and had to be cut short" in drained.stderr
    assert drained.stderr.splitlines()[-1].startswith("stopped the daemon (pid ")
    assert [one["name"] for one in (await tower(b, "nodes", "--json")).json] == ["b"]
    events = (await tower(b, "attach", session_id, "--jsonl", "--no-follow")).events
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1)), "nothing was lost on the way"
    client.close()


async def test_only_who_is_at_the_machine_may_drain_it(start_fleet: StartFleet) -> None:
    fleet = await start_fleet(2)
    a, _ = fleet.nodes
    async with await PushClient.over_websocket(a.endpoints["http"], a.endpoints["token"]) as client:
        assert len((await client.ask("list_nodes"))["nodes"]) == 2
        with pytest.raises(Refused) as refused:
            await client.ask("drain_node", {"waitSeconds": 0})

    assert refused.value.code == "ATTACH_FORBIDDEN"
    assert not (await node_of(fleet, "a"))["draining"]
