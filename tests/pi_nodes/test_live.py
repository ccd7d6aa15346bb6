"""Pi at three nodes as real processes on one PostgreSQL: whichever door of whichever node a client comes to, it is one server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.crash.tower_process import PushRequestRefused, RawPushClient
from tests.daemon.pi_stage import TIMEOUT, answer_to, join_deltas
from tests.nodes.conftest import folder as folder
from tests.nodes.conftest import shared_server as shared_server
from tests.nodes.conftest import start_cluster as start_cluster
from tests.nodes.fleet import NodeProcess, ProcessCluster

from switchtower.testing.pi_client import PiClient
from switchtower.testing.wire import ClientWire, SocketWire, WebSocketWire

SETTINGS: dict[str, object] = {"pi": "127.0.0.1:0", "pi_session_rate": 0, "pi_client_rate": 0}
LONG_LEASE, SHORT_LEASE = 60, 3
"""In seconds. On a busy machine a node may renew a short lease too late; only tests in which a node ends use it."""

Connect = Callable[..., Awaitable[PiClient]]


@pytest.fixture
async def process_cluster(start_cluster: Callable[..., Awaitable[ProcessCluster]]) -> ProcessCluster:
    return await start_cluster(3, **SETTINGS, node_lease=LONG_LEASE)


@pytest.fixture
async def failing_fleet(start_cluster: Callable[..., Awaitable[ProcessCluster]]) -> ProcessCluster:
    return await start_cluster(3, **SETTINGS, node_lease=SHORT_LEASE)


async def open_wire(node: NodeProcess, door: str) -> ClientWire:
    endpoints = node.endpoints
    if door == "unix":
        return await SocketWire.open(endpoints["piSocket"])
    if door == "path":
        return await WebSocketWire.open(endpoints["http"], endpoints["token"], path="/ws/pi")
    return await WebSocketWire.open(endpoints["pi"].replace("ws://", "http://"), None, path="/")


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """A client that was greeted. While no node serves, it tries again, as it is told to."""
    async with AsyncExitStack() as stack:

        async def connect(node: NodeProcess, door: str = "port") -> PiClient:
            async with asyncio.timeout(TIMEOUT):
                while True:
                    client = PiClient(await open_wire(node, door), timeout=TIMEOUT)
                    await stack.enter_async_context(client)
                    try:
                        assert (await client.receive())["type"] == "server_ready"
                    except EOFError:
                        assert _get_close_code(client) in (1012, 1013, None), "told to come again"
                        await asyncio.sleep(0.05)
                    else:
                        return client

        yield connect


def _get_close_code(client: PiClient) -> int | None:
    return client.wire.close_code if isinstance(client.wire, WebSocketWire) else None


async def wait_closed(client: PiClient) -> int | None:
    with pytest.raises(EOFError):
        await client.wait_for(lambda frame: False)
    return _get_close_code(client)


async def find_pi_node(process_cluster: ProcessCluster) -> NodeProcess:
    node = await process_cluster.wait_until(lambda: process_cluster.find_home("seat:pi"), "somebody has the seat")
    assert isinstance(node, NodeProcess)
    return node


async def test_every_door_of_every_node_leads_to_one_server(process_cluster: ProcessCluster, connect: Connect) -> None:
    clients = [await connect(node, door) for node in process_cluster.nodes for door in ("port", "path", "unix")]
    assert await find_pi_node(process_cluster) is process_cluster.nodes[0]
    made = await clients[8].execute("create_session", cwd=str(process_cluster.workspace))
    session_id = made["sessionId"]
    for client in clients:
        await client.execute("switch_session", sessionId=session_id)
    assert (await clients[4].request("prompt", sessionId=session_id, message="count 50"))["success"] is True
    for client in clients:
        await client.wait_for(lambda frame: frame["type"] == "event" and frame["event"]["type"] == "agent_end")
    told = [client.list_events(session_id) for client in clients]
    assert all(events == told[0] for events in told)
    assert join_deltas(told[0]).split()[-1] == "50"
    answers = [await client.request("get_metrics") for client in clients]
    assert {answer["data"]["connectionCount"] for answer in answers} == {9}


async def test_a_session_with_its_home_elsewhere_keeps_versions_and_order(
    process_cluster: ProcessCluster, connect: Connect
) -> None:
    a, b, c = process_cluster.nodes
    await connect(a)
    push, session_id = await process_cluster.start_session_on(b)
    client = await connect(c)
    await client.execute("switch_session", sessionId=session_id)
    assert await process_cluster.find_home(session_id) is b
    version = 0
    for number in range(30):
        named = await client.request("set_session_name", sessionId=session_id, name=f"n{number}", ifSessionVersion=version)
        assert named["success"], named
        version = named["sessionVersion"]
        assert (await client.execute("get_state", sessionId=session_id))["sessionName"] == f"n{number}"
    assert version == 30
    stale = await client.request("set_session_name", sessionId=session_id, name="x", ifSessionVersion=version - 1)
    assert stale["error"] == f"Session version mismatch: expected {version - 1}, got {version}"
    assert (await client.request("prompt", sessionId=session_id, message="count 3"))["success"] is True
    assert (await client.request("bash", sessionId=session_id, command="echo hello"))["data"]["output"].strip() == "hello"
    push.close()


async def test_when_the_node_that_serves_dies_the_next_one_knows_what_was_asked(
    failing_fleet: ProcessCluster, connect: Connect
) -> None:
    fleet = failing_fleet
    a, b, c = fleet.nodes
    near, far = await connect(a), await connect(b)
    made = await far.execute("create_session", cwd=str(fleet.workspace))
    session_id = made["sessionId"]
    await far.execute("switch_session", sessionId=session_id)
    named = {"type": "set_session_name", "id": "name-1", "sessionId": session_id, "name": "kept"}
    before = await answer_to(far, named)
    prompt = {"type": "prompt", "id": "prompt-1", "sessionId": session_id, "message": "count 1000000"}
    await far.send_frames(prompt)
    await far.next_event("message_update")
    a.kill()
    with pytest.raises((EOFError, ConnectionError)):
        await near.wait_for(lambda frame: False)
    assert await wait_closed(far) == 1012
    again = await connect(c)
    assert await find_pi_node(fleet) is c
    after = await answer_to(again, named)
    assert after == {**before, "replayed": True}
    other = await answer_to(again, {**named, "name": "another"})
    assert "Conflicting id 'name-1'" in other["error"]
    ended = await answer_to(again, prompt)
    assert (ended["success"], ended["replayed"]) == (False, True), "its run was on the machine that died"
    # It stays so, and what came before can be built on.
    assert (await answer_to(again, prompt))["error"] == ended["error"]
    later = {"type": "set_session_name", "id": "l", "sessionId": session_id, "name": "z", "dependsOn": ["name-1"]}
    assert (await answer_to(again, later))["success"] is True


async def test_a_node_that_was_paused_and_lost_the_seat_lets_its_clients_go(
    failing_fleet: ProcessCluster, connect: Connect
) -> None:
    fleet = failing_fleet
    a, b, _ = fleet.nodes
    near, far = await connect(a), await connect(b)
    made = await near.execute("create_session", cwd=str(fleet.workspace))
    a.pause()
    assert await wait_closed(far) == 1012
    again = await connect(b)
    assert await find_pi_node(fleet) is b
    assert (await again.request("set_session_name", sessionId=made["sessionId"], name="new", id="n"))["success"] is True
    # What waits at the paused node is not done there, whatever it was.
    await near.send_frames({"type": "set_session_name", "id": "zombie", "sessionId": made["sessionId"], "name": "old"})
    a.resume()
    assert await wait_closed(near) == 1012
    assert (await again.execute("get_state", sessionId=made["sessionId"]))["sessionName"] == "new"
    back = await connect(a)
    assert (await back.execute("get_state", sessionId=made["sessionId"]))["sessionName"] == "new"


async def test_a_node_that_stops_gives_the_seat_up_at_once(process_cluster: ProcessCluster, connect: Connect) -> None:
    a, b, _ = process_cluster.nodes
    near, far = await connect(a), await connect(b)
    stopping = asyncio.ensure_future(a.stop())
    for client in (near, far):
        assert await wait_closed(client) == 1001  # what the document has for a server that stops
        assert [frame["type"] for frame in client.frames].count("server_shutdown") == 1
    again = await connect(b)
    assert (await again.request("list_sessions"))["success"] is True
    assert await find_pi_node(process_cluster) is b
    assert await stopping == 0


async def test_a_program_at_a_socket_is_answered_after_it_has_said_all(process_cluster: ProcessCluster, connect: Connect) -> None:
    a, b, _ = process_cluster.nodes
    await connect(a)
    await connect(b, "unix")  # from now on the way to the node that serves is known to be open
    wire = await SocketWire.open(b.endpoints["piSocket"])
    hello: dict[str, Any] = {"type": "switchtower_hello", "namespace": "ns", "cwd": str(process_cluster.workspace)}
    client = PiClient(wire, timeout=TIMEOUT)
    await client.send_frames(hello, {"type": "create_session", "id": "1"}, {"type": "list_sessions", "id": "2"})
    wire.writer.write_eof()
    await wait_closed(client)
    answers = {frame["id"]: frame["success"] for frame in client.frames if frame["type"] == "response"}
    assert answers == {"1": True, "2": True}
    client.wire.abort()


async def ask_until_answered(client: RawPushClient, type_: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Asks again while the nodes have not found each other, as the refusal's hint says."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                return await client.ask(type_, payload)
            except PushRequestRefused as refused:
                if not refused.retryable:
                    raise
                await asyncio.sleep(0.05)


async def test_what_a_session_has_changed_is_looked_up_where_its_home_is(
    process_cluster: ProcessCluster, connect: Connect
) -> None:
    _, b, c = process_cluster.nodes
    here, session_id = await process_cluster.start_session_on(b, policy="yolo")
    skill = process_cluster.workspace / ".tower" / "prompts" / "greet.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("Say hello.")
    message = {"sessionId": session_id, "clientMessageId": "msg_1", "text": "write notes.txt: hello"}
    await here.ask("send_user_message", message)
    await here.wait_for_event("run_complete")
    there = await process_cluster.connect(c)
    asked = {"sessionId": session_id}
    changed = (await ask_until_answered(there, "diff_session", asked))["diff"]
    assert "+hello" in changed
    assert changed == (await here.ask("diff_session", asked))["diff"]
    client = await connect(c)
    commands = await client.execute("get_commands", sessionId=session_id)
    assert "greet" in [command["name"] for command in commands["commands"]]
    here.close()
    there.close()
