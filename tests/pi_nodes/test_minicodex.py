"""A MiniCodex client that comes back at another node: each has a house of its own, and what they know is the journal's."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.runtime.conftest import make_runtime as make_runtime
from tests.runtime.parts import SUCCESS, TIMEOUT, MakeRuntime, RuntimeHarness, ask_once

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.core.roles import Access
from switchtower.protocols.minicodex.server import MiniCodexServer, MiniCodexSettings
from switchtower.testing.memory.stream import MemoryStream, RecordingReceiver, join_receivers

Frame = dict[str, Any]


class MiniCodexNodeClient(RecordingReceiver):
    """Connected to one node's house. `last_event_id` is the cursor that it takes along."""

    def __init__(self, node: MiniCodexServer, session_id: str | None = None) -> None:
        super().__init__()
        self.session_id = session_id
        self.last_event_id = 0
        self.heard: list[Frame] = []
        receiver = node.accept(Access(name="owner", via="app", trusted=True), session_id=session_id, cwd="/work")
        self.theirs: MemoryStream = join_receivers(receiver, self)[0]

    def send_message(self, type_: str, **fields: object) -> None:
        self.send(msgspec.json.encode({"type": type_, **fields}))

    async def receive(self) -> Frame:
        async with asyncio.timeout(TIMEOUT):
            frame: Frame = msgspec.json.decode(await self.next_frame())
        self.heard.append(frame)
        self.last_event_id = max(self.last_event_id, frame.get("event_id") or 0)
        return frame

    async def wait_until(self, *args: Any, **wanted: object) -> Any:  # type: ignore[override]
        if args:
            return await super().wait_until(*args)
        while True:
            frame = await self.receive()
            if wanted.items() <= frame.items():
                return frame

    async def greet(self) -> "MiniCodexNodeClient":
        self.send_message("hello", v="1.0.0", client_capabilities=[])
        self.session_id = (await self.wait_until(type="welcome"))["session_state"]["session_id"]
        await self.wait_until(type="snapshot")
        return self

    async def wait_for_status(self, status: str) -> None:
        while True:
            frame = await self.wait_until(type="run_status")
            if frame["run_state"]["status"] == status:
                return


def make_node(runtime_harness: RuntimeHarness) -> MiniCodexServer:
    return MiniCodexServer(runtime_harness.runtime, MiniCodexSettings(heartbeat_s=0))


async def reconnect(runtime_harness: RuntimeHarness, before: MiniCodexNodeClient) -> MiniCodexNodeClient:
    """At another node, with what the client has: its session and its cursor."""
    client = MiniCodexNodeClient(make_node(runtime_harness), before.session_id)
    client.last_event_id = before.last_event_id
    client.send_message("resume", last_seen_event_id=before.last_event_id)
    await client.wait_until(type="welcome")
    return client


async def test_who_is_let_go_resumes_elsewhere_and_has_seen_everything_once(make_runtime: MakeRuntime) -> None:
    goes_on = asyncio.Event()

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await desk.emit(events.TextDelta("one "))
        await goes_on.wait()
        await desk.emit(events.TextDelta("two"))
        await desk.emit(events.MessageCompleted(message_id="m", text="one two"))
        return SUCCESS

    house = await make_runtime(work)
    first_node = make_node(house)
    client = await MiniCodexNodeClient(first_node).greet()
    client.send_message("send", text="go", client_msg_id="msg_1", req_id="r1")
    await client.wait_until(type="accepted", req_id="r1")
    await client.wait_until(type="assistant_text")
    first_node.close_for_restart()
    async with asyncio.timeout(TIMEOUT):
        await client.wait_until(lambda: client.closed)
    assert client.theirs.closed_with == (1012, "service restart, reconnect")
    goes_on.set()
    again = await reconnect(house, client)
    await again.wait_for_status("finished")
    ids = [frame["event_id"] for frame in (*client.heard, *again.heard) if frame.get("event_id") is not None]
    assert ids == sorted(set(ids)), "none twice, and in order"
    pieces = [frame["text"] for frame in (*client.heard, *again.heard) if frame["type"] == "assistant_text"]
    assert "".join(pieces) == "one two"


async def test_a_message_that_is_sent_again_elsewhere_is_one_message(make_runtime: MakeRuntime) -> None:
    house = await make_runtime()
    client = await MiniCodexNodeClient(make_node(house)).greet()
    client.send_message("send", text="go", client_msg_id="msg_1", req_id="r1")
    await client.wait_until(type="accepted", req_id="r1")
    again = await reconnect(house, client)
    again.send_message("send", text="go", client_msg_id="msg_1", req_id="r2")
    await again.wait_until(type="accepted", req_id="r2")
    if not _is_finished(client, again):
        await again.wait_for_status("finished")
    assert len(house.engine.tasks) == 1


def _is_finished(*clients: MiniCodexNodeClient) -> bool:
    frames = [frame for client in clients for frame in client.heard if frame["type"] == "run_status"]
    return any(frame["run_state"]["status"] == "finished" for frame in frames)


async def test_an_approval_is_decided_at_any_node_and_once(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(ask_once)
    client = await MiniCodexNodeClient(make_node(house)).greet()
    client.send_message("send", text="go", client_msg_id="msg_1")
    call_id = (await client.wait_until(type="approval_pending"))["call_id"]
    other = await reconnect(house, client)
    other.send_message("approve", call_id=call_id, req_id="a1")
    await other.wait_until(type="accepted", req_id="a1")
    client.send_message("deny", call_id=call_id, req_id="a2")
    refused = await client.wait_until(type="error", req_id="a2")
    assert refused["code"] == "APPROVAL_CONFLICT"
    await other.wait_for_status("finished")


async def test_a_snapshot_is_the_same_at_every_node(make_runtime: MakeRuntime) -> None:
    house = await make_runtime()
    client = await MiniCodexNodeClient(make_node(house)).greet()
    client.send_message("send", text="go", client_msg_id="msg_1")
    await client.wait_for_status("finished")
    snapshots = []
    for at in (client, await reconnect(house, client)):
        at.send_message("get_snapshot", include_transcript_window=True, req_id="s")
        snapshots.append(await at.wait_until(type="snapshot"))
    assert snapshots[0] == snapshots[1]


@pytest.mark.parametrize("last_seen", [0, 1, 4_095, 4_096, 10**15])
async def test_a_cursor_of_any_kind_is_answered_alike_by_a_house_that_knows_the_session_and_one_that_does_not(
    make_runtime: MakeRuntime, last_seen: int
) -> None:
    house = await make_runtime()
    known = make_node(house)
    client = await MiniCodexNodeClient(known).greet()
    client.send_message("send", text="go", client_msg_id="msg_1")
    await client.wait_for_status("finished")
    told = []
    for at in (known, make_node(house)):
        again = MiniCodexNodeClient(at, client.session_id)
        again.send_message("resume", last_seen_event_id=last_seen)
        again.send_message("ping", nonce="end")
        await again.wait_until(type="accepted")
        told.append(again.heard)
    assert told[0] == told[1]
