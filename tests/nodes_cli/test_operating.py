"""Two nodes as somebody looks after them: who has what, one emptied and stopped, and what a load balancer hears of it."""

import asyncio
import os
import sys
from typing import Any
from urllib import request
from urllib.error import HTTPError

import msgspec
import pytest
from tests.cli.conftest import TowerResult
from tests.crash.tower_process import RawPushClient
from tests.nodes.conftest import StartFleet
from tests.nodes.fleet import NodeProcess, ProcessCluster
from tests.warm import processes

from switchtower.testing.push_client import PushClient, RequestRefused

TIMEOUT = 60


async def run_tower(node: NodeProcess, *arguments: str) -> TowerResult:
    """A command at the node's own machine."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TOWER_", "PUSHD_"))}
    ended = await asyncio.to_thread(
        processes.run,
        [sys.executable, "-P", "-m", "switchtower", *arguments],
        input=b"",
        capture_output=True,
        cwd=node.home,
        env={**inherited, "TOWER_HOME": str(node.home)},
        timeout=TIMEOUT,
    )
    return TowerResult(ended.returncode, ended.stdout, ended.stderr.decode())


async def fetch_page(node: NodeProcess, path: str) -> tuple[int, bytes]:
    def fetch() -> tuple[int, bytes]:
        try:
            with request.urlopen(node.endpoints["http"] + path, timeout=TIMEOUT) as answer:
                return answer.status, answer.read()
        except HTTPError as refusal:
            return refusal.code, refusal.read()

    return await asyncio.to_thread(fetch)


async def find_node(process_cluster: ProcessCluster, name: str) -> dict[str, Any]:
    known = (await run_tower(process_cluster.nodes[-1], "nodes", "--json")).json
    return next(dict(one) for one in known if one["name"] == name)


async def run_message(client: RawPushClient, session_id: str, text: str) -> None:
    await client.ask("send_user_message", {"sessionId": session_id, "clientMessageId": "msg_1", "text": text})
    await client.wait_for_event("run_complete", session_id=session_id)


async def test_every_node_tells_the_same_about_who_has_what(start_cluster: StartFleet) -> None:
    fleet = await start_cluster(2)
    a, b = fleet.nodes
    client_a, of_a = await fleet.start_session_on(a)
    client_b, of_b = await fleet.start_session_on(b)
    await run_message(client_a, of_a, "say: one")
    await run_message(client_b, of_b, "say: two")

    for node, mark in ((a, "a"), (b, "b")):
        listed = (await run_tower(node, "nodes", "--json")).json
        assert [(one["name"], one["alive"], one["draining"], one["sessions"]) for one in listed] == [
            ("a", True, False, 1),
            ("b", True, False, 1),
        ]
        assert [one["name"] for one in listed if one["isThis"]] == [mark]
        owned = (await run_tower(node, "nodes", "--sessions", "--json")).json
        assert {one["sessionId"]: one["node"] for one in owned} == {of_a: "a", of_b: "b"}
        sessions = (await run_tower(node, "sessions", "--json")).json
        assert {one["sessionId"]: one["node"] for one in sessions} == {of_a: "a", of_b: "b"}
        shown = (await run_tower(node, "show", of_a)).stdout.decode().splitlines()
        assert ["node:", "a"] in [line.split() for line in shown]
        status = (await run_tower(node, "status", "--json")).json
        assert (status["node"]["name"], status["node"]["alive"], status["node"]["homes"]) == (mark, 2, 1)
    client_a.close()
    client_b.close()


async def test_a_drained_node_is_empty_and_not_ready_and_what_waited_is_decided_elsewhere(start_cluster: StartFleet) -> None:
    fleet = await start_cluster(2)
    a, b = fleet.nodes
    client, session_id = await fleet.start_session_on(a)
    await client.ask("send_user_message", {"sessionId": session_id, "clientMessageId": "msg_1", "text": "run: echo hi"})
    await client.wait_for_event("approval_required", session_id=session_id)
    assert f"{session_id} on a" in (await run_tower(b, "inbox")).stdout.decode()
    assert (await fetch_page(a, "/readyz"))[0] == 200

    drained = await run_tower(a, "drain", "--wait", "20")

    assert (drained.code, drained.stdout) == (0, b""), drained.stderr
    assert drained.stderr.startswith("draining a; runs have 20 s to end\n")
    assert drained.stderr.endswith("the node is empty: 1 session handed over\n")
    status, body = await fetch_page(a, "/readyz")
    assert (status, msgspec.json.decode(body)) == (503, {"ready": False, "reasons": ["the node is draining"]})
    assert b"switchtower_node_draining 1\n" in (await fetch_page(a, "/metrics"))[1]
    emptied = await find_node(fleet, "a")
    assert (emptied["alive"], emptied["draining"], emptied["sessions"]) == (True, True, 0)

    async def is_at_b() -> bool:
        return await fleet.find_home(session_id) is b

    await fleet.wait_until(is_at_b, "the other node takes the session over")
    assert f"{session_id} on b" in (await run_tower(b, "inbox")).stdout.decode()
    assert (await run_tower(b, "approve", session_id)).code == 0

    again = await run_tower(a, "drain")
    assert (again.code, again.stderr.splitlines()[-1]) == (0, "the node is empty: 1 session handed over")
    client.close()


async def test_drain_with_stop_cuts_short_what_takes_too_long_and_ends_the_daemon(start_cluster: StartFleet) -> None:
    fleet = await start_cluster(2, demo_delay_ms=200)
    a, b = fleet.nodes
    client, session_id = await fleet.start_session_on(a)
    await client.ask("send_user_message", {"sessionId": session_id, "clientMessageId": "msg_1", "text": "count 1000"})
    await client.wait_for_event("assistant_token", session_id=session_id)

    drained = await run_tower(a, "drain", "--wait", "0", "--stop")

    assert drained.code == 0, drained.stderr
    assert "1 run did not end in time and had to be cut short" in drained.stderr
    assert drained.stderr.splitlines()[-1].startswith("stopped the daemon (pid ")
    assert [one["name"] for one in (await run_tower(b, "nodes", "--json")).json] == ["b"]
    events = (await run_tower(b, "attach", session_id, "--jsonl", "--no-follow")).events
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1)), "nothing was lost on the way"
    client.close()


async def test_only_who_is_at_the_machine_may_drain_it(start_cluster: StartFleet) -> None:
    fleet = await start_cluster(2)
    a, _ = fleet.nodes
    async with await PushClient.connect_websocket(a.endpoints["http"], a.endpoints["token"]) as client:
        assert len((await client.request_payload("list_nodes"))["nodes"]) == 2
        with pytest.raises(RequestRefused) as refused:
            await client.request_payload("drain_node", {"waitSeconds": 0})

    assert refused.value.code == "ATTACH_FORBIDDEN"
    assert not (await find_node(fleet, "a"))["draining"]
