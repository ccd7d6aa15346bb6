"""Messages for a run that is under way: told to the engine once committed, kept over a restart, never lost between two runs."""

import asyncio
from typing import Any

from tests.runtime.parts import SESSION, SUCCESS, MakeHouse, cancel, decide, question

from switchtower.core import commands, engine, events
from switchtower.testing.sessions import OWNER


def queue(text: str, delivery: events.Delivery = events.Delivery.STEER, **fields: Any) -> commands.QueueMessage:
    return commands.QueueMessage(session_id=SESSION, actor=OWNER, text=text, delivery=delivery, **fields)


class Steered:
    """An engine that works until it is told to stop, and takes up what it is told meanwhile."""

    def __init__(self) -> None:
        self.look = asyncio.Event()
        self.taken: list[str] = []

    async def __call__(self, task: engine.Task, desk: engine.Desk) -> engine.Result:
        while True:
            await self.look.wait()
            self.look.clear()
            for queued in desk.steered():
                self.taken.append(queued.text)
                await desk.emit(events.MessageDelivered(queued.message_id, queued.text))
                if queued.text == "stop":
                    return SUCCESS


async def test_a_steering_message_reaches_the_engine_once(make_house: MakeHouse) -> None:
    work = Steered()
    house = await make_house(work)
    outlet = await house.with_session()
    await house.send()
    await house.ask(queue("use tabs"))
    work.look.set()
    await outlet.next_of(events.MessageDelivered)
    await house.ask(queue("stop"))
    work.look.set()
    await outlet.next_of(events.RunCompleted)
    assert work.taken == ["use tabs", "stop"]
    assert [event.text for event in outlet.seen(events.MessageDelivered)] == ["use tabs", "stop"]


async def test_a_message_that_the_engine_did_not_take_up_becomes_the_next_run(make_house: MakeHouse) -> None:
    go = asyncio.Event()

    async def deaf(task: engine.Task, desk: engine.Desk) -> engine.Result:
        await go.wait()
        return SUCCESS

    house = await make_house(deaf)
    outlet = await house.with_session()
    first = await house.send("first")
    await house.ask(queue("steered"))
    await house.ask(queue("later", events.Delivery.FOLLOW_UP))
    go.set()
    await outlet.next_of(events.RunCompleted, 3)
    assert [task.messages[-1].text for task in house.engine.tasks] == ["first", "steered", "later"]
    started = [entry.run_id for entry in outlet.entries if entry.kind == events.RunStarted.kind]
    assert started[0] == first
    assert len(set(started)) == 3


async def test_a_follow_up_is_not_told_to_the_run_that_it_waits_for(make_house: MakeHouse) -> None:
    told: list[str] = []
    go = asyncio.Event()

    async def listening(task: engine.Task, desk: engine.Desk) -> engine.Result:
        await go.wait()
        told.extend(queued.text for queued in desk.steered())
        return SUCCESS

    house = await make_house(listening)
    outlet = await house.with_session()
    await house.send()
    await house.ask(queue("later", events.Delivery.FOLLOW_UP))
    go.set()
    await outlet.next_of(events.RunCompleted, 2)
    assert told == []


async def test_a_cancelled_run_gives_its_queue_back_with_a_word(make_house: MakeHouse) -> None:
    house = await make_house(Steered())
    outlet = await house.with_session()
    await house.send()
    message_id = (await house.ask(queue("later", events.Delivery.FOLLOW_UP)))["message_id"]
    await house.ask(cancel())
    await outlet.next_of(events.RunCompleted)
    assert [event.message_id for event in outlet.seen(events.MessageWithdrawn)] == [message_id]
    assert len(house.engine.tasks) == 1


async def test_the_same_message_sent_twice_is_queued_once(make_house: MakeHouse) -> None:
    work = Steered()
    house = await make_house(work)
    outlet = await house.with_session()
    await house.send()
    for _ in range(2):
        await house.ask(queue("stop", idempotency_key="msg_1"))
    work.look.set()
    await outlet.next_of(events.RunCompleted)
    assert [event.message_id for event in outlet.seen(events.MessageQueued)] == ["msg_1"]


async def test_what_was_not_taken_up_before_a_restart_is_there_after_it(make_house: MakeHouse) -> None:
    async def asks_then_listens(task: engine.Task, desk: engine.Desk) -> engine.Result:
        await desk.ask(question())
        for queued in desk.steered():
            await desk.emit(events.MessageDelivered(queued.message_id, queued.text))
        return SUCCESS

    first = await make_house(asks_then_listens)
    outlet = await first.with_session()
    await first.send()
    approval = (await outlet.next_of(events.ApprovalRequested)).approval
    await first.ask(queue("use tabs"))
    await first.crash()

    second = await make_house(asks_then_listens, first.journal.inner)
    outlet = await second.attached()
    await second.ask(decide(approval.id))
    assert (await outlet.next_of(events.MessageDelivered)).text == "use tabs"
    await outlet.next_of(events.RunCompleted)


async def test_output_of_a_tool_is_redacted_over_its_pieces_and_ends_before_its_result(make_house: MakeHouse) -> None:
    secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"

    async def talkative(task: engine.Task, desk: engine.Desk) -> engine.Result:
        await desk.emit(events.ToolCalled("call_1", "run", {"command": "env"}))
        for piece in ("TOKEN is ", secret[:10], secret[10:25], secret[25:], " and the end is ghp_"):
            await desk.emit(events.ToolProgressed("call_1", piece))
        await desk.emit(events.ToolFinished("call_1", "run", 1, "done"))
        return SUCCESS

    house = await make_house(talkative)
    outlet = await house.with_session()
    await house.send()
    await outlet.next_of(events.RunCompleted)
    told = [event for event in outlet.told if isinstance(event, events.ToolProgressed | events.ToolFinished)]
    output = "".join(event.text for event in told if isinstance(event, events.ToolProgressed))
    assert output == "TOKEN is [redacted] and the end is ghp_"
    assert isinstance(told[-1], events.ToolFinished)


async def test_an_engine_is_told_the_conversation_as_it_was_expanded_steered_and_compacted(make_house: MakeHouse) -> None:
    async def work(task: engine.Task, desk: engine.Desk) -> engine.Result:
        if len(house.engine.tasks) == 1:
            await desk.emit(events.PromptExpanded("see @a\n\ncontent of a", ("a",)))
            await desk.emit(events.MessageCompleted("asst_1", "I have seen it"))
            await desk.emit(events.MessageDelivered("msg_1", "and b?"))
            await desk.emit(events.MessageCompleted("asst_2", "that too"))
        elif len(house.engine.tasks) == 2:
            await desk.emit(events.ContextCompacted("requested", "they looked at files", 1, 100, 10))
        return SUCCESS

    house = await make_house(work)
    outlet = await house.with_session()
    await house.send("see @a")
    await outlet.next_of(events.RunCompleted, 1)
    await house.ask(commands.CompactContext(session_id=SESSION, actor=OWNER))
    await outlet.next_of(events.RunCompleted, 2)
    await house.send("go on")
    await outlet.next_of(events.RunCompleted, 3)
    before, after = house.engine.tasks[1].messages, house.engine.tasks[2].messages
    assert [message.text for message in before] == ["see @a\n\ncontent of a", "I have seen it", "and b?", "that too"]
    assert [message.text for message in after] == [f"{engine.SUMMARY_HEADING}\n\nthey looked at files", "that too", "go on"]
    assert house.engine.tasks[1].purpose is events.Purpose.COMPACT
