"""Pi clients at several nodes: one house serves all of them, and when it goes the next one knows what it knew."""

import asyncio
import gc
import weakref

import msgspec
import pytest
from tests.pi_nodes.conftest import MakeStage
from tests.pi_nodes.stage import LONG_MS, PiCluster, PiNodeClient
from tests.runtime.parts import SUCCESS, work_until_cancelled

from switchtower.cluster.mesh import ports
from switchtower.cluster.pi_router import NO_PI_NODE, RECONNECT
from switchtower.cluster.pi_tunnel import WENT_AWAY, TunnelClientEnd
from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.core.roles import Access
from switchtower.transports.stream import RespondingReceiver, Stream

RESTART, LATER = 1012, 1013


async def test_clients_of_all_nodes_share_one_order_of_commands(pi_cluster: PiCluster) -> None:
    one, two, three = pi_cluster.nodes
    first, second = await one.connect_and_greet(), await two.connect_and_greet()
    session_id = await pi_cluster.start_session(first)
    assert [node.lease.is_held for node in pi_cluster.nodes] == [True, False, False]
    made = await second.receive_type("session_created")
    assert made["data"]["sessionId"] == session_id, "what is announced is announced to everybody"
    third = await three.connect_and_greet()
    named = await first.ask("set_session_name", sessionId=session_id, name="one")
    assert named["sessionVersion"] == 1
    # The same id means the same command, wherever it is said.
    command = {"type": "set_session_name", "id": named["id"], "sessionId": session_id, "name": "one"}
    third.send(msgspec.json.encode(command))
    again = await third.answer(named["id"])
    assert (again["replayed"], again["sessionVersion"]) == (True, 1)
    stale = await second.ask("set_session_name", sessionId=session_id, name="two", ifSessionVersion=0)
    assert stale["error"] == "Session version mismatch: expected 0, got 1"


async def test_a_command_waits_for_one_that_another_node_s_client_has_asked_for(make_pi_cluster: MakeStage) -> None:
    goes_on = asyncio.Event()

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await goes_on.wait()
        return SUCCESS

    stage = await make_pi_cluster(work)
    one, two, _ = stage.nodes
    first, second = await one.connect_and_greet(), await two.connect_and_greet()
    sessions = [await stage.start_session(first), await stage.start_session(first)]
    first.send(msgspec.json.encode({"type": "prompt", "id": "p", "sessionId": sessions[0], "message": "x"}))
    while (await first.receive_type("command_started"))["data"]["commandId"] != "p":
        pass
    depends = {"type": "set_session_name", "id": "n", "sessionId": sessions[1], "name": "later", "dependsOn": ["p"]}
    second.send(msgspec.json.encode(depends))
    while (await second.receive()).get("data", {}).get("commandId") != "n":
        pass
    goes_on.set()
    assert (await second.answer("n"))["success"] is True
    order = [frame["data"]["commandId"] for frame in second.heard if frame["type"] == "command_finished"]
    assert order.index("p") < order.index("n")


async def test_a_tunnelled_client_follows_a_session_like_any_other(pi_cluster: PiCluster) -> None:
    one, two, _ = pi_cluster.nodes
    here, there = await one.connect_and_greet(), await two.connect_and_greet()
    session_id = await pi_cluster.start_session(here)
    await there.ask("switch_session", sessionId=session_id)
    assert (await here.ask("prompt", sessionId=session_id, message="hello"))["success"] is True
    told = []
    while "agent_end" not in told:
        told.append((await there.receive_type("event"))["event"]["type"])
    assert (told[0], told[-1]) == ("agent_start", "agent_end")


async def test_who_a_client_is_and_how_it_came_is_told_through_the_tunnel(pi_cluster: PiCluster) -> None:
    one, two, _ = pi_cluster.nodes
    await one.connect_and_greet()
    # The owner's program at a socket names the process that it speaks for, which nobody else may.
    program = await two.connect_and_greet(Access(name="anna", via="cli", trusted=True), transport="unix")
    stranger = await two.connect_and_greet(Access(name="ben", via="app", trusted=True), transport="websocket")
    hello = msgspec.json.encode({"type": "switchtower_hello", "namespace": "p1", "cwd": "/work"})
    program.send(hello)
    made = await program.ask("create_session")
    session = await pi_cluster.runtime.runtime.get_session(made["data"]["sessionId"])
    assert session.workspace.root == "/work"
    entry = (await pi_cluster.runtime.runtime.read_entries(session.id, 0, 1))[0]
    assert b'"anna"' in entry.data
    stranger.send(hello)
    assert (await stranger.receive_type("response"))["success"] is False


async def test_a_namespace_and_the_wish_for_quiet_hold_at_another_node(pi_cluster: PiCluster) -> None:
    one, two, _ = pi_cluster.nodes
    await one.connect_and_greet()
    quiet, own = await two.connect_and_greet(lifecycle=False), await two.connect_and_greet(namespace="n1")
    assert (await quiet.ask("list_sessions"))["success"] is True
    assert [frame["type"] for frame in quiet.heard] == ["server_ready", "response"]
    (used,) = [frame["id"] for frame in quiet.heard if frame["type"] == "response"]
    own.send(msgspec.json.encode({"type": "health_check", "id": used}))
    assert (await own.answer(used))["success"] is True, "an id of others is free in a namespace of one's own"


async def test_frames_that_are_too_long_or_rubbish_are_refused_as_at_home(pi_cluster: PiCluster) -> None:
    one, two, _ = pi_cluster.nodes
    near, far = await one.connect_and_greet(), await two.connect_and_greet()
    for client in (near, far):
        client.receiver.on_oversized_frame("Message size 9 exceeds limit 8")
        assert (await client.receive_type("response"))["error"] == "Message size 9 exceeds limit 8"
    rubbish = [
        b"",
        b"{",
        b"\xff\xfe",
        b'\0{"type":"oversized","problem":"x"}',
        b'\0{"type":"closing","code":1000}',
        b"\0",
        b"[" * 5_000,
    ]
    for frame in rubbish:
        told = []
        for client in (near, far):
            client.send(frame)
            told.append(await client.receive_type("response"))
        assert told[0] == told[1], frame[:20]
    assert (await far.ask("list_sessions"))["success"] is True


async def test_what_is_said_before_it_is_known_who_serves_is_heard_in_order(pi_cluster: PiCluster) -> None:
    one, two, _ = pi_cluster.nodes
    await one.connect_and_greet()
    client = two.connect()
    client.receiver.on_frames([b'{"type":"list_sessions","id":"a"}'])
    client.receiver.on_oversized_frame("Message size 9 exceeds limit 8")
    client.receiver.on_frames([b'{"type":"list_sessions","id":"b"}'])
    answers = [await client.receive_type("response") for _ in range(3)]
    assert [answer.get("id") for answer in answers] == ["a", None, "b"]


async def test_a_client_that_does_not_read_is_not_read_from_and_misses_nothing(pi_cluster: PiCluster) -> None:
    one, two, _ = pi_cluster.nodes
    await one.connect_and_greet()
    slow = await two.connect_and_greet(lifecycle=False)
    slow.stream.pause_reading()
    count = 3_000
    for number in range(count):
        slow.send(b'{"type":"health_check","id":"%d"}' % number)
        if number % 100 == 0:
            await asyncio.sleep(0)
    slow.stream.resume_reading()
    answers = [await slow.receive_type("response") for _ in range(count)]
    assert [answer["id"] for answer in answers] == [str(number) for number in range(count)]


async def test_a_client_that_has_said_all_is_owed_its_answers(make_pi_cluster: MakeStage) -> None:
    stage = await make_pi_cluster(work_until_cancelled)
    one, two, _ = stage.nodes
    near, far = await one.connect_and_greet(), await two.connect_and_greet(transport="unix")
    far.send(b'{"type":"switchtower_hello","namespace":"x"}')
    session_id = await stage.start_session(far)
    assert isinstance(far.receiver, RespondingReceiver)
    assert far.receiver.has_pending_responses() is False
    far.begin("prompt", sessionId=session_id, message="x")
    while (await near.receive_type("command_started"))["data"]["commandType"] != "prompt":
        pass
    assert far.receiver.has_pending_responses() is True
    await near.ask("abort", sessionId=session_id)
    await far.receive_type("response")
    assert far.receiver.has_pending_responses() is False


async def test_a_client_that_leaves_is_gone_at_the_node_that_serves_it(pi_cluster: PiCluster) -> None:
    one, two, _ = pi_cluster.nodes
    near, far = await one.connect_and_greet(), await two.connect_and_greet()
    assert (await near.ask("get_metrics"))["data"]["connectionCount"] == 2
    far.stream.abort()
    async with asyncio.timeout(60):
        while (await near.ask("get_metrics"))["data"]["connectionCount"] != 1:
            pass


# When the seat changes hands


@pytest.mark.requirement("pi:session:name-kept", "pi:session:name-reused")
async def test_the_id_that_a_client_chose_means_the_same_session_at_every_node(pi_cluster: PiCluster) -> None:
    one, two, three = pi_cluster.nodes
    near, far = await one.connect_and_greet(), await two.connect_and_greet()
    made = await far.ask("create_session", sessionId="s1", cwd="/work")
    assert made["data"]["sessionId"] == "s1"
    assert (await near.ask("create_session", sessionId="s1", cwd="/work"))["error"] == "Session s1 already exists"
    assert (await near.ask("delete_session", sessionId="s1"))["success"] is True
    again = await near.ask("create_session", sessionId="s1", cwd="/work")
    assert again["data"]["sessionInfo"]["sessionFile"] != made["data"]["sessionInfo"]["sessionFile"]
    await near.ask("switch_session", sessionId="s1")
    named = await near.ask("set_session_name", sessionId="s1", name="kept")
    await one.crash()
    await far.wait_closed()
    other = await three.connect_and_greet()
    listed = (await other.ask("list_sessions"))["data"]["sessions"]
    assert [(info["sessionId"], info["sessionName"]) for info in listed] == [("s1", "kept")]
    other.send(msgspec.json.encode({"type": "set_session_name", "id": named["id"], "sessionId": "s1", "name": "kept"}))
    assert (await other.answer(named["id"]))["replayed"] is True
    await other.ask("switch_session", sessionId="s1")
    prompt = other.begin("prompt", sessionId="s1", message="hello")
    assert (await other.receive_type("event"))["sessionId"] == "s1"
    assert (await other.answer(prompt))["success"] is True
    assert {card.session_id[:5] for card in await pi_cluster.runtime.runtime.list_cards(10)} == {"sess_"}


async def test_when_the_node_dies_its_clients_elsewhere_are_told_to_come_again(pi_cluster: PiCluster) -> None:
    one, two, three = pi_cluster.nodes
    await one.connect_and_greet()
    far = await two.connect_and_greet()
    session_id = await pi_cluster.start_session(far)
    named = await far.ask("set_session_name", sessionId=session_id, name="kept")
    await one.crash()
    assert await far.wait_closed() == (RESTART, WENT_AWAY)
    # The next house knows the identities, the versions and the sessions from the journal.
    again = await three.connect_and_greet()
    assert three.lease.is_held is True
    again.send(msgspec.json.encode({"type": "set_session_name", "id": named["id"], "sessionId": session_id, "name": "kept"}))
    replay = await again.answer(named["id"])
    assert (replay["replayed"], replay["success"], replay["sessionVersion"]) == (True, True, named["sessionVersion"])
    again.send(msgspec.json.encode({"type": "set_session_name", "id": named["id"], "sessionId": session_id, "name": "other"}))
    assert "Conflicting id" in (await again.answer(named["id"]))["error"]
    after = {"type": "set_session_name", "id": "x", "sessionId": session_id, "name": "y", "dependsOn": [named["id"]]}
    again.send(msgspec.json.encode(after))
    assert (await again.answer("x"))["sessionVersion"] == named["sessionVersion"] + 1


async def test_a_prompt_goes_on_when_the_house_that_began_it_is_gone(make_pi_cluster: MakeStage) -> None:
    goes_on = asyncio.Event()

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await goes_on.wait()
        return engine.RunResult(events.Outcome.SUCCESS, "done")

    stage = await make_pi_cluster(work)
    one, two, _ = stage.nodes
    await one.connect_and_greet()
    far = await two.connect_and_greet()
    session_id = await stage.start_session(far)
    prompt = {"type": "prompt", "id": "p", "sessionId": session_id, "message": "x"}
    far.send(msgspec.json.encode(prompt))
    await stage.runtime.engine.wait_until(lambda: len(stage.runtime.engine.tasks) == 1)
    await one.leases.renew(one.node_id, 0)
    one.pi.on_lease_lost()
    assert await far.wait_closed() == (RESTART, RECONNECT)
    again = await two.connect_and_greet()
    again.send(msgspec.json.encode(prompt))
    while (await again.receive()).get("data", {}).get("commandId") != "p":
        pass
    goes_on.set()
    answer = await again.answer("p")
    assert (answer["success"], answer["replayed"]) == (True, True)
    assert len(stage.runtime.engine.tasks) == 1, "asked twice, run once"


async def test_a_node_that_lost_its_lease_serves_nobody_until_it_has_the_seat_again(pi_cluster: PiCluster) -> None:
    one, two, _ = pi_cluster.nodes
    near, far = await one.connect_and_greet(), await two.connect_and_greet()
    await one.leases.renew(one.node_id, 0)
    one.pi.on_lease_lost()
    for client in (near, far):
        assert await client.wait_closed() == (RESTART, RECONNECT)
    assert (await two.connect_and_greet()).closed is False
    assert two.lease.is_held is True
    await one.leases.renew(one.node_id, LONG_MS)
    back = await one.connect_and_greet()
    assert one.lease.is_held is False
    assert (await back.ask("list_sessions"))["success"] is True


async def test_what_comes_after_the_lease_has_lapsed_is_not_done_though_nobody_was_told_yet(pi_cluster: PiCluster) -> None:
    one, two, _ = pi_cluster.nodes
    near, far = await one.connect_and_greet(), await two.connect_and_greet()
    session_id = await pi_cluster.start_session(near)
    one.holds = False
    for client in (near, far):
        client.begin("set_session_name", sessionId=session_id, name="late")
        assert await client.wait_closed() == (RESTART, RECONNECT)
    assert (await pi_cluster.runtime.runtime.get_session(session_id)).title != "late"


async def test_what_was_begun_before_the_lease_lapsed_changes_nothing_after_it(make_pi_cluster: MakeStage) -> None:
    goes_on = asyncio.Event()

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await goes_on.wait()
        return SUCCESS

    stage = await make_pi_cluster(work)
    one = stage.nodes[0]
    client = await one.connect_and_greet()
    session_id = await stage.start_session(client)
    prompt = client.begin("prompt", sessionId=session_id, message="x")
    await stage.runtime.engine.wait_until(lambda: len(stage.runtime.engine.tasks) == 1)
    version = (await stage.runtime.runtime.get_session(session_id)).version
    one.holds = False
    goes_on.set()
    assert (await client.answer(prompt))["success"] is False
    assert (await stage.runtime.runtime.get_session(session_id)).version == version


async def test_who_was_let_in_by_a_house_that_was_given_up_before_it_came_is_closed(pi_cluster: PiCluster) -> None:
    one = pi_cluster.nodes[0]
    await one.connect_and_greet()
    let_in = one.pi.accept(Access(name="owner", via="app", trusted=True))
    one.pi.on_lease_lost()
    late = PiNodeClient(let_in)
    assert await late.wait_closed() == (RESTART, RECONNECT)
    assert not late.frames


async def test_a_house_that_is_given_up_leaves_nothing_behind(pi_cluster: PiCluster) -> None:
    one = pi_cluster.nodes[0]
    client = await one.connect_and_greet()
    session_id = await pi_cluster.start_session(client)
    await client.ask("switch_session", sessionId=session_id)
    house = weakref.ref(one.late.get())
    one.pi.on_lease_lost()
    await client.wait_closed()
    del client
    async with asyncio.timeout(60):
        while house() is not None:
            await asyncio.sleep(0)
            gc.collect()


async def test_an_empty_house_is_given_up_after_a_while_and_the_next_client_finds_another(make_pi_cluster: MakeStage) -> None:
    stage = await make_pi_cluster(idle_s=0.01)
    one, two, _ = stage.nodes
    client = await one.connect_and_greet()
    session_id = await stage.start_session(client)
    client.stream.close()
    async with asyncio.timeout(60):
        while await stage.leases.find_owner("seat:pi") is not None:
            await asyncio.sleep(0.005)
    assert one.lease.is_held is False
    far = await two.connect_and_greet()
    assert two.lease.is_held is True
    assert [info["sessionId"] for info in (await far.ask("list_sessions"))["data"]["sessions"]] == [session_id]


# Leaving


async def test_who_leaves_tells_everybody_answers_what_is_under_way_and_gives_the_seat_up(make_pi_cluster: MakeStage) -> None:
    goes_on = asyncio.Event()

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await goes_on.wait()
        return SUCCESS

    stage = await make_pi_cluster(work)
    one, two, three = stage.nodes
    near, far = await one.connect_and_greet(), await two.connect_and_greet()
    session_id = await stage.start_session(far)
    prompt = far.begin("prompt", sessionId=session_id, message="x")
    await stage.runtime.engine.wait_until(lambda: len(stage.runtime.engine.tasks) == 1)
    leaving = asyncio.ensure_future(one.pi.leave(5.0))
    for client in (near, far):
        told = await client.receive_type("server_shutdown")
        assert told == {"type": "server_shutdown", "data": {"reason": "graceful_shutdown", "timeoutMs": 5_000}}
    goes_on.set()
    assert (await far.answer(prompt))["success"] is True
    await leaving
    for client in (near, far):
        assert await client.wait_closed() == (RESTART, RECONNECT)
    again = await three.connect_and_greet()
    assert three.lease.is_held is True
    assert (await again.ask("list_sessions"))["success"] is True


async def test_a_node_without_the_seat_lets_its_own_clients_go_with_their_answers(make_pi_cluster: MakeStage) -> None:
    stage = await make_pi_cluster(work_until_cancelled)
    one, two, _ = stage.nodes
    near, far, busy = await one.connect_and_greet(), await two.connect_and_greet(), await two.connect_and_greet()
    session_id = await stage.start_session(busy)
    prompt = busy.begin("prompt", sessionId=session_id, message="x")
    await stage.runtime.engine.wait_until(lambda: len(stage.runtime.engine.tasks) == 1)
    leaving = asyncio.ensure_future(two.pi.leave(5.0))
    await busy.receive_type("server_shutdown")
    await near.ask("abort", sessionId=session_id)
    assert (await busy.answer(prompt))["success"] is True
    await leaving
    for client in (far, busy):
        assert await client.wait_closed() == (RESTART, RECONNECT)
    assert near.closed is False
    assert not [frame for frame in near.heard if frame["type"] == "server_shutdown"]


async def test_a_drained_node_still_takes_clients_in_and_has_them_served_elsewhere(pi_cluster: PiCluster) -> None:
    one, two, _ = pi_cluster.nodes
    await one.connect_and_greet()
    await one.pi.leave(1.0)
    await one.leases.drain(one.node_id)
    client = await one.connect_and_greet()
    assert one.lease.is_held is False
    assert two.lease.is_held is True, "it was asked, and took what was free"
    assert (await client.ask("list_sessions"))["success"] is True


# When nobody can serve


async def test_while_nobody_can_tell_who_serves_clients_are_asked_to_try_later(pi_cluster: PiCluster) -> None:
    one = pi_cluster.nodes[0]
    await one.leases.close()
    assert await one.connect().wait_closed() == (LATER, NO_PI_NODE)
    await one.leases.open()
    await one.connect_and_greet()


async def test_a_node_that_cannot_be_reached_serves_nobody_here(pi_cluster: PiCluster) -> None:
    one, two, _ = pi_cluster.nodes
    await one.connect_and_greet()
    two.mesh.drop_link(one.node_id)
    assert await two.connect().wait_closed() == (LATER, NO_PI_NODE)


async def test_who_is_sent_to_a_node_without_the_seat_is_not_sent_on(pi_cluster: PiCluster) -> None:
    one, two, three = pi_cluster.nodes
    await one.connect_and_greet()
    # Node 3 believes what was so a moment ago.
    await three.leases.drain(three.node_id)
    await one.pi.leave(1.0)
    await one.leases.drain(one.node_id)
    await two.leases.drain(two.node_id)
    assert await three.connect().wait_closed() == (LATER, NO_PI_NODE)


@pytest.mark.parametrize("opening", [b"", b"\xff", b"{}", b"[]", b'{"access":{"name":1}}'])
async def test_an_opening_that_cannot_be_read_is_turned_away(pi_cluster: PiCluster, opening: bytes) -> None:
    one, two, _ = pi_cluster.nodes
    client = PiNodeClient(_SentFrames(two.mesh, one.node_id, opening))
    code, reason = await client.wait_closed()
    assert code == LATER
    assert "versions" in reason


class _SentFrames:
    """A receiver that opens a tunnel with words of its own."""

    def __init__(self, mesh: ports.Mesh, node_id: str, opening: bytes) -> None:
        self._mesh, self._node_id, self._opening = mesh, node_id, opening

    def on_connected(self, stream: Stream) -> None:
        self._mesh.open_tunnel(self._node_id, "pi", self._opening, TunnelClientEnd(stream))

    def on_frames(self, frames: list[bytes]) -> None: ...

    def on_oversized_frame(self, problem: str) -> None: ...

    def on_writable(self) -> None: ...

    def on_disconnected(self) -> None: ...
