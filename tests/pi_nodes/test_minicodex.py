"""A MiniCodex client that comes back at another node: each has a house of its own, and what they know is the journal's."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.runtime.conftest import make_house as make_house
from tests.runtime.parts import PATIENCE, SUCCESS, House, MakeHouse, ask_once

from switchtower.core import engine, events
from switchtower.core.access import Access
from switchtower.protocols.minicodex.house import House as MiniHouse
from switchtower.protocols.minicodex.settings import MiniCodexSettings
from switchtower.transports.pair import Inbox, MemoryStream, pair

Frame = dict[str, Any]


class Client(Inbox):
    """Connected to one node's house. `last_event_id` is the cursor that it takes along."""

    def __init__(self, node: MiniHouse, session_id: str | None = None) -> None:
        super().__init__()
        self.session_id = session_id
        self.last_event_id = 0
        self.heard: list[Frame] = []
        receiver = node.accept(Access(name="owner", via="app", trusted=True), session_id=session_id, cwd="/work")
        self.theirs: MemoryStream = pair(receiver, self)[0]

    def say(self, type_: str, **fields: object) -> None:
        self.send(msgspec.json.encode({"type": type_, **fields}))

    async def hear(self) -> Frame:
        async with asyncio.timeout(PATIENCE):
            frame: Frame = msgspec.json.decode(await self.next())
        self.heard.append(frame)
        self.last_event_id = max(self.last_event_id, frame.get("event_id") or 0)
        return frame

    async def until(self, *args: Any, **wanted: object) -> Any:  # type: ignore[override]
        if args:
            return await super().until(*args)
        while True:
            frame = await self.hear()
            if wanted.items() <= frame.items():
                return frame

    async def greeted(self) -> "Client":
        self.say("hello", v="1.0.0", client_capabilities=[])
        self.session_id = (await self.until(type="welcome"))["session_state"]["session_id"]
        await self.until(type="snapshot")
        return self

    async def status(self, status: str) -> None:
        while True:
            frame = await self.until(type="run_status")
            if frame["run_state"]["status"] == status:
                return


def node(house: House) -> MiniHouse:
    return MiniHouse(house.runtime, MiniCodexSettings(heartbeat_s=0))


async def back(house: House, before: Client) -> Client:
    """At another node, with what the client has: its session and its cursor."""
    client = Client(node(house), before.session_id)
    client.last_event_id = before.last_event_id
    client.say("resume", last_seen_event_id=before.last_event_id)
    await client.until(type="welcome")
    return client


async def test_who_is_let_go_resumes_elsewhere_and_has_seen_everything_once(make_house: MakeHouse) -> None:
    goes_on = asyncio.Event()

    async def work(task: engine.Task, desk: engine.Desk) -> engine.Result:
        await desk.emit(events.TextDelta("one "))
        await goes_on.wait()
        await desk.emit(events.TextDelta("two"))
        await desk.emit(events.MessageCompleted(message_id="m", text="one two"))
        return SUCCESS

    house = await make_house(work)
    first_node = node(house)
    client = await Client(first_node).greeted()
    client.say("send", text="go", client_msg_id="msg_1", req_id="r1")
    await client.until(type="accepted", req_id="r1")
    await client.until(type="assistant_text")
    first_node.let_go()
    async with asyncio.timeout(PATIENCE):
        await client.until(lambda: client.closed)
    assert client.theirs.closed_with == (1012, "service restart, reconnect")
    goes_on.set()
    again = await back(house, client)
    await again.status("finished")
    ids = [frame["event_id"] for frame in (*client.heard, *again.heard) if frame.get("event_id") is not None]
    assert ids == sorted(set(ids)), "none twice, and in order"
    pieces = [frame["text"] for frame in (*client.heard, *again.heard) if frame["type"] == "assistant_text"]
    assert "".join(pieces) == "one two"


async def test_a_message_that_is_sent_again_elsewhere_is_one_message(make_house: MakeHouse) -> None:
    house = await make_house()
    client = await Client(node(house)).greeted()
    client.say("send", text="go", client_msg_id="msg_1", req_id="r1")
    await client.until(type="accepted", req_id="r1")
    again = await back(house, client)
    again.say("send", text="go", client_msg_id="msg_1", req_id="r2")
    await again.until(type="accepted", req_id="r2")
    if not _is_finished(client, again):
        await again.status("finished")
    assert len(house.engine.tasks) == 1


def _is_finished(*clients: Client) -> bool:
    frames = [frame for client in clients for frame in client.heard if frame["type"] == "run_status"]
    return any(frame["run_state"]["status"] == "finished" for frame in frames)


async def test_an_approval_is_decided_at_any_node_and_once(make_house: MakeHouse) -> None:
    house = await make_house(ask_once)
    client = await Client(node(house)).greeted()
    client.say("send", text="go", client_msg_id="msg_1")
    call_id = (await client.until(type="approval_pending"))["call_id"]
    other = await back(house, client)
    other.say("approve", call_id=call_id, req_id="a1")
    await other.until(type="accepted", req_id="a1")
    client.say("deny", call_id=call_id, req_id="a2")
    refused = await client.until(type="error", req_id="a2")
    assert refused["code"] == "APPROVAL_CONFLICT"
    await other.status("finished")


async def test_a_snapshot_is_the_same_at_every_node(make_house: MakeHouse) -> None:
    house = await make_house()
    client = await Client(node(house)).greeted()
    client.say("send", text="go", client_msg_id="msg_1")
    await client.status("finished")
    snapshots = []
    for at in (client, await back(house, client)):
        at.say("get_snapshot", include_transcript_window=True, req_id="s")
        snapshots.append(await at.until(type="snapshot"))
    assert snapshots[0] == snapshots[1]


@pytest.mark.parametrize("last_seen", [0, 1, 4_095, 4_096, 10**15])
async def test_a_cursor_of_any_kind_is_answered_alike_by_a_house_that_knows_the_session_and_one_that_does_not(
    make_house: MakeHouse, last_seen: int
) -> None:
    house = await make_house()
    known = node(house)
    client = await Client(known).greeted()
    client.say("send", text="go", client_msg_id="msg_1")
    await client.status("finished")
    told = []
    for at in (known, node(house)):
        again = Client(at, client.session_id)
        again.say("resume", last_seen_event_id=last_seen)
        again.say("ping", nonce="end")
        await again.until(type="accepted")
        told.append(again.heard)
    assert told[0] == told[1]
