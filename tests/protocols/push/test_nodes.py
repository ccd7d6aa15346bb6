"""Nodes over push: one client at a real runtime, with nodes that the test has made."""

import asyncio
import json
from typing import Any

import pytest
from tests.conformance.schema_check import check
from tests.runtime.parts import RuntimeHarness, start_session

from switchtower.core.ports import cluster
from switchtower.core.roles import Access
from switchtower.protocols.push.connection import PushConnection
from switchtower.testing.memory.stream import RecordingReceiver, join_receivers

OWNER = Access(name="owner", via="cli", trusted=True)
HERE = cluster.Node("node_1", "10.0.0.1:7000", 1_000, 9_000, True, 2, name="attic", version="0.1.0")
THERE = cluster.Node("node_2", "10.0.0.2:7000", 2_000, 3_000, False, 1, draining=True)


class TwoNodeCluster:
    """Implements `nodes.Nodes`. Draining ends when the test lets it."""

    node_id = HERE.node_id

    def __init__(self, problem: cluster.LeasesUnavailable | None = None) -> None:
        self.problem = problem
        self.waits: list[float] = []
        self.let_go = asyncio.Event()
        self.drained = asyncio.Event()

    async def list_nodes(self) -> list[cluster.Node]:
        if self.problem is not None:
            raise self.problem
        return [HERE, THERE]

    async def drain(self, wait_s: float) -> cluster.DrainResult:
        self.waits.append(wait_s)
        await self.let_go.wait()
        if self.problem is not None:
            raise self.problem
        self.drained.set()
        return cluster.DrainResult(sessions=2, interrupted=1)


@pytest.fixture
async def runtime_harness() -> Any:
    house = RuntimeHarness()
    await house.open()
    yield house
    await house.close()


def connect_client(runtime_harness: RuntimeHarness, access: Access = OWNER) -> RecordingReceiver:
    client = RecordingReceiver()
    join_receivers(PushConnection(runtime_harness.runtime, access, "0"), client)
    return client


async def ask(client: RecordingReceiver, type_: str, payload: dict[str, Any] | None = None) -> dict[str, Any]:
    send_request(client, type_, payload)
    return await answer(client)


def send_request(client: RecordingReceiver, type_: str, payload: dict[str, Any] | None = None) -> None:
    request = {"v": "push.runtime.v1", "kind": "request", "requestId": "req_1", "type": type_, "payload": payload or {}}
    client.send(json.dumps(request).encode())


async def answer(client: RecordingReceiver) -> dict[str, Any]:
    async with asyncio.timeout(60):
        response: dict[str, Any] = json.loads(await client.next_frame())
    check(response)
    return response


async def test_nodes_are_listed_with_the_one_that_answers_marked(runtime_harness: RuntimeHarness) -> None:
    runtime_harness.runtime.nodes = TwoNodeCluster()

    listed = (await ask(connect_client(runtime_harness), "list_nodes"))["payload"]["nodes"]

    assert listed == [
        {
            "id": "node_1",
            "name": "attic",
            "address": "10.0.0.1:7000",
            "version": "0.1.0",
            "alive": True,
            "draining": False,
            "sessions": 2,
            "joinedAt": 1_000,
            "isThis": True,
        },
        {
            "id": "node_2",
            "name": "node_2",
            "address": "10.0.0.2:7000",
            "version": "",
            "alive": False,
            "draining": True,
            "sessions": 1,
            "joinedAt": 2_000,
            "isThis": False,
        },
    ]


async def test_a_daemon_that_is_alone_lists_no_nodes_and_cannot_be_drained(runtime_harness: RuntimeHarness) -> None:
    client = connect_client(runtime_harness)

    assert (await ask(client, "list_nodes"))["payload"] == {"nodes": []}
    error = (await ask(client, "drain_node"))["error"]
    assert (error["code"], error["retryable"]) == ("INVALID_REQUEST", False)
    assert "alone" in error["message"]
    assert "hint: `tower stop`" in error["message"]


@pytest.mark.parametrize(("type_", "let_go"), [("list_nodes", False), ("drain_node", True)])
async def test_while_the_store_is_away_the_client_may_ask_again(
    runtime_harness: RuntimeHarness, type_: str, let_go: bool
) -> None:
    runtime_harness.runtime.nodes = known = TwoNodeCluster(cluster.LeasesUnavailable("it hung up", hint="see whether it runs"))
    if let_go:
        known.let_go.set()

    error = (await ask(connect_client(runtime_harness), type_))["error"]

    assert (error["code"], error["retryable"]) == ("INTERNAL_ERROR", True)
    assert "it hung up" in error["message"]
    assert error["message"].endswith("hint: see whether it runs")


async def test_draining_is_answered_when_it_is_done_and_others_go_on_meanwhile(runtime_harness: RuntimeHarness) -> None:
    runtime_harness.runtime.nodes = known = TwoNodeCluster()
    client = connect_client(runtime_harness)

    send_request(client, "drain_node", {"waitSeconds": 12.5})
    assert (await ask(client, "ping"))["type"] == "ping"
    known.let_go.set()

    assert (await answer(client))["payload"] == {"sessions": 2, "interrupted": 1}
    assert known.waits == [12.5]


async def test_draining_goes_on_when_the_client_that_asked_is_let_go_itself(runtime_harness: RuntimeHarness) -> None:
    runtime_harness.runtime.nodes = known = TwoNodeCluster()
    client = connect_client(runtime_harness)
    send_request(client, "drain_node")
    await ask(client, "ping")

    client.stream.close()
    await client.wait_until(lambda: client.closed)
    known.let_go.set()

    async with asyncio.timeout(60):
        await known.drained.wait()
    assert known.waits == [30.0]


@pytest.mark.parametrize(
    "access",
    [
        Access(name="owner", via="app", trusted=True),
        Access(name="ada", via="app", trusted=False),
        Access(name="owner", via="cli", trusted=False),
        Access(name="owner", via="cli", trusted=False, run_id="run_1"),
    ],
    ids=["on a websocket", "a user", "not trusted", "of a run"],
)
async def test_only_the_owner_on_the_daemon_s_socket_may_drain(runtime_harness: RuntimeHarness, access: Access) -> None:
    runtime_harness.runtime.nodes = known = TwoNodeCluster()
    known.let_go.set()

    refused = await ask(connect_client(runtime_harness, access), "drain_node", {"waitSeconds": 0})

    assert refused["error"]["code"] == "ATTACH_FORBIDDEN"
    assert known.waits == []


@pytest.mark.parametrize("wait", [-1, 86_401, 1e400, "30", None, True, [], {"deep": [[[]]]}])
async def test_a_wait_that_makes_no_sense_is_refused(runtime_harness: RuntimeHarness, wait: Any) -> None:
    runtime_harness.runtime.nodes = known = TwoNodeCluster()
    known.let_go.set()

    refused = await ask(connect_client(runtime_harness), "drain_node", {"waitSeconds": wait})

    assert refused["error"]["code"] == "INVALID_REQUEST"
    assert known.waits == []


async def test_a_session_that_no_node_has_is_shown_without_a_home(runtime_harness: RuntimeHarness) -> None:
    runtime_harness.runtime.nodes = TwoNodeCluster()
    await runtime_harness.ask(start_session("sess_1"))
    client = connect_client(runtime_harness)

    [card] = (await ask(client, "list_cards"))["payload"]["cards"]
    about = (await ask(client, "get_session", {"sessionId": "sess_1"}))["payload"]

    assert (card["home"], about["home"]) == (None, None)
