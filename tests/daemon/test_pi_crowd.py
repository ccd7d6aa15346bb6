"""Hundreds of connections that only listen while one works, and the limit to how many there may be."""

import asyncio

import pytest
from tests.daemon.pi_stage import PiHarness

from switchtower.testing.pi_client import Frame, PiClient
from switchtower.testing.wire import WebSocketWire

IDLE = 500
COMMANDS = 60

PHASES = ["command_accepted", "command_started", "command_finished"]


async def test_five_hundred_idle_connections_hear_each_lifecycle_event_once_or_nothing_at_all(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    listening = [await pi_harness.connect() for _ in range(IDLE // 2)]
    quiet = [await pi_harness.connect(lifecycle=False) for _ in range(IDLE // 2)]
    worker = await pi_harness.connect()
    session_id = await pi_harness.start_session(worker)
    ids = []
    for number in range(COMMANDS):
        type_, fields = (
            ("set_session_name", {"sessionId": session_id, "name": f"name {number}"})
            if number % 3 == 0
            else ("get_state", {"sessionId": session_id})
            if number % 3 == 1
            else ("list_sessions", {})
        )
        answer = await worker.request(type_, **fields)
        assert answer["success"] is True
        ids.append(answer["id"])
    for wanted in ids:
        assert [frame["type"] for frame in worker.list_lifecycle(wanted)] == [*PHASES, "response"]

    async def read_along(client: PiClient) -> None:
        await client.wait_for(lambda frame: frame["type"] == "command_finished" and frame["data"]["commandId"] == ids[-1])

    await asyncio.gather(*(read_along(client) for client in listening))
    for client in listening:
        told = [(frame["data"]["commandId"], frame["type"]) for frame in client.frames if frame["type"] in PHASES]
        assert [pair for pair in told if pair[0] in ids] == [(id_, phase) for id_ in ids for phase in PHASES]
        assert [frame["type"] for frame in client.frames if frame["type"] not in PHASES] == ["server_ready", "session_created"]

    # Whatever is on its way to a quiet one comes before the answer to what it asks now.
    for client in quiet:
        await client.request("list_sessions")
        assert [frame["type"] for frame in client.frames] == ["server_ready", "session_created", "response"]
    metrics = await worker.execute("get_metrics")
    assert metrics["connectionCount"] == IDLE + 1


async def test_one_connection_more_than_allowed_is_closed_with_1013_and_room_is_given_again(pi_harness: PiHarness) -> None:
    await pi_harness.open(pi_max_connections=3)
    clients = [await pi_harness.connect() for _ in range(3)]
    for number in range(1, 6):
        wire = await pi_harness.open_wire()
        assert isinstance(wire, WebSocketWire)
        with pytest.raises(EOFError):
            await wire.receive()
        assert wire.close_code == 1013
        wire.abort()
        assert (await clients[0].execute("get_metrics"))["commandsRejected"]["connectionLimit"] == number
    clients[-1].wire.abort()
    async with asyncio.timeout(60):
        while (await clients[0].execute("get_metrics"))["connectionCount"] > 2:
            pass
    newcomer = await pi_harness.connect()
    assert (await newcomer.execute("list_sessions")) == {"sessions": []}


async def test_connections_that_come_and_go_leave_nothing_behind(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    worker = await pi_harness.connect()
    session_id = await pi_harness.start_session(worker)
    for _ in range(10):
        visitors = [await pi_harness.connect() for _ in range(20)]
        for visitor in visitors:
            await visitor.begin("switch_session", sessionId=session_id)
            visitor.wire.abort()
        await worker.execute("prompt", sessionId=session_id, message="say: hello")
    async with asyncio.timeout(60):
        while (await worker.execute("get_metrics"))["connectionCount"] > 1:
            pass
    stores = (await worker.execute("get_metrics"))["stores"]
    assert stores["replay"]["inFlightCount"] <= 1
    assert [event["type"] for event in worker.list_events()].count("agent_end") == 10


async def test_of_many_who_want_the_same_at_once_one_gets_it_and_all_are_told(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    clients = [await pi_harness.connect(lifecycle=False) for _ in range(10)]
    session_id = await pi_harness.start_session(clients[0])

    async def all_ask(type_: str, **fields: object) -> list[Frame]:
        return list(await asyncio.gather(*(client.request(type_, **fields) for client in clients)))

    answers = await all_ask("set_session_name", sessionId=session_id, name="mine", ifSessionVersion=0)
    assert sorted(answer.get("error", "") for answer in answers) == ["", *["Session version mismatch: expected 0, got 1"] * 9]
    answers = await all_ask("set_session_name", sessionId=session_id, name="ours")
    assert sorted(answer["sessionVersion"] for answer in answers) == list(range(2, 12))
    answers = await all_ask("bash", id="the same", sessionId=session_id, command="echo once >> written")
    assert [answer.get("replayed") for answer in answers].count(True) == 9
    assert len({answer["data"]["output"] for answer in answers}) == 1
    assert (pi_harness.workspace / "written").read_text() == "once\n"
    answers = await all_ask("create_session", id="one session", cwd=str(pi_harness.workspace))
    assert len({answer["data"]["sessionId"] for answer in answers}) == 1
    answers = await all_ask("create_session", sessionId="chosen", cwd=str(pi_harness.workspace))
    assert sorted(answer.get("error", "") for answer in answers) == ["", *["Session chosen already exists"] * 9]
    answers = await all_ask("delete_session", sessionId="chosen")
    assert sorted(answer.get("error", "") for answer in answers) == ["", *["Session chosen not found"] * 9]
    answers = await all_ask("prompt", sessionId=session_id, message="say: mine")
    assert sorted(answer["sessionVersion"] for answer in answers) == list(range(13, 23))
