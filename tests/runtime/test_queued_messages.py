"""Messages for a run that is under way: told to the engine once committed, kept over a restart, never lost between two runs."""

import asyncio
from typing import Any

from tests.runtime.parts import SESSION, SUCCESS, MakeRuntime, cancel, decide, make_question

from switchtower.core import commands, events
from switchtower.core.ports import engine
from switchtower.testing.session_driver import OWNER


def queue(text: str, delivery: events.Delivery = events.Delivery.STEER, **fields: Any) -> commands.QueueMessage:
    return commands.QueueMessage(session_id=SESSION, actor=OWNER, text=text, delivery=delivery, **fields)


class SteeredEngine:
    """An engine that works until it is told to stop, and takes up what it is told meanwhile."""

    def __init__(self) -> None:
        self.look = asyncio.Event()
        self.taken: list[str] = []

    async def __call__(self, task: engine.Task, context: engine.RunContext) -> engine.RunResult:
        while True:
            await self.look.wait()
            self.look.clear()
            for queued in context.take_steering_messages():
                self.taken.append(queued.text)
                await context.emit(events.MessageDelivered(queued.message_id, queued.text))
                if queued.text == "stop":
                    return SUCCESS


async def test_a_steering_message_reaches_the_engine_once(make_runtime: MakeRuntime) -> None:
    work = SteeredEngine()
    house = await make_runtime(work)
    outlet = await house.start_session()
    await house.send()
    await house.ask(queue("use tabs"))
    work.look.set()
    await outlet.wait_for_event(events.MessageDelivered)
    await house.ask(queue("stop"))
    work.look.set()
    await outlet.wait_for_event(events.RunCompleted)
    assert work.taken == ["use tabs", "stop"]
    assert [event.text for event in outlet.list_events(events.MessageDelivered)] == ["use tabs", "stop"]


async def test_a_message_that_the_engine_did_not_take_up_becomes_the_next_run(make_runtime: MakeRuntime) -> None:
    go = asyncio.Event()

    async def deaf(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await go.wait()
        return SUCCESS

    house = await make_runtime(deaf)
    outlet = await house.start_session()
    first = await house.send("first")
    await house.ask(queue("steered"))
    await house.ask(queue("later", events.Delivery.FOLLOW_UP))
    go.set()
    await outlet.wait_for_event(events.RunCompleted, 3)
    assert [task.messages[-1].text for task in house.engine.tasks] == ["first", "steered", "later"]
    started = [entry.run_id for entry in outlet.entries if entry.kind == events.RunStarted.kind]
    assert started[0] == first
    assert len(set(started)) == 3


async def test_a_follow_up_is_not_told_to_the_run_that_it_waits_for(make_runtime: MakeRuntime) -> None:
    told: list[str] = []
    go = asyncio.Event()

    async def listening(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await go.wait()
        told.extend(queued.text for queued in desk.take_steering_messages())
        return SUCCESS

    house = await make_runtime(listening)
    outlet = await house.start_session()
    await house.send()
    await house.ask(queue("later", events.Delivery.FOLLOW_UP))
    go.set()
    await outlet.wait_for_event(events.RunCompleted, 2)
    assert told == []


async def test_a_cancelled_run_gives_its_queue_back_with_a_word(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(SteeredEngine())
    outlet = await house.start_session()
    await house.send()
    message_id = (await house.ask(queue("later", events.Delivery.FOLLOW_UP)))["message_id"]
    await house.ask(cancel())
    await outlet.wait_for_event(events.RunCompleted)
    assert [event.message_id for event in outlet.list_events(events.MessageWithdrawn)] == [message_id]
    assert len(house.engine.tasks) == 1


async def test_the_same_message_sent_twice_is_queued_once(make_runtime: MakeRuntime) -> None:
    work = SteeredEngine()
    house = await make_runtime(work)
    outlet = await house.start_session()
    await house.send()
    for _ in range(2):
        await house.ask(queue("stop", idempotency_key="msg_1"))
    work.look.set()
    await outlet.wait_for_event(events.RunCompleted)
    assert [event.message_id for event in outlet.list_events(events.MessageQueued)] == ["msg_1"]


async def test_what_was_not_taken_up_before_a_restart_is_there_after_it(make_runtime: MakeRuntime) -> None:
    async def asks_then_listens(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await desk.request_approval(make_question())
        for queued in desk.take_steering_messages():
            await desk.emit(events.MessageDelivered(queued.message_id, queued.text))
        return SUCCESS

    first = await make_runtime(asks_then_listens)
    outlet = await first.start_session()
    await first.send()
    approval = (await outlet.wait_for_event(events.ApprovalRequested)).approval
    await first.ask(queue("use tabs"))
    await first.crash()

    second = await make_runtime(asks_then_listens, first.journal.inner)
    outlet = await second.attach_subscriber()
    await second.ask(decide(approval.id))
    assert (await outlet.wait_for_event(events.MessageDelivered)).text == "use tabs"
    await outlet.wait_for_event(events.RunCompleted)


async def test_output_of_a_tool_is_redacted_over_its_pieces_and_ends_before_its_result(make_runtime: MakeRuntime) -> None:
    secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"

    async def talkative(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await desk.emit(events.ToolCalled("call_1", "run", {"command": "env"}))
        for piece in ("TOKEN is ", secret[:10], secret[10:25], secret[25:], " and the end is ghp_"):
            await desk.emit(events.ToolProgressed("call_1", piece))
        await desk.emit(events.ToolFinished("call_1", "run", 1, "done"))
        return SUCCESS

    house = await make_runtime(talkative)
    outlet = await house.start_session()
    await house.send()
    await outlet.wait_for_event(events.RunCompleted)
    told = [event for event in outlet.told if isinstance(event, events.ToolProgressed | events.ToolFinished)]
    output = "".join(event.text for event in told if isinstance(event, events.ToolProgressed))
    assert output == "TOKEN is [redacted] and the end is ghp_"
    assert isinstance(told[-1], events.ToolFinished)


async def test_an_engine_is_told_the_conversation_as_it_was_expanded_steered_and_compacted(make_runtime: MakeRuntime) -> None:
    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        if len(house.engine.tasks) == 1:
            await desk.emit(events.PromptExpanded("see @a\n\ncontent of a", ("a",)))
            await desk.emit(events.MessageCompleted("asst_1", "I have seen it"))
            await desk.emit(events.MessageDelivered("msg_1", "and b?"))
            await desk.emit(events.MessageCompleted("asst_2", "that too"))
        elif len(house.engine.tasks) == 2:
            await desk.emit(events.ContextCompacted("requested", "they looked at files", 1, 100, 10))
        return SUCCESS

    house = await make_runtime(work)
    outlet = await house.start_session()
    await house.send("see @a")
    await outlet.wait_for_event(events.RunCompleted, 1)
    await house.ask(commands.CompactContext(session_id=SESSION, actor=OWNER))
    await outlet.wait_for_event(events.RunCompleted, 2)
    await house.send("go on")
    await outlet.wait_for_event(events.RunCompleted, 3)
    before, after = house.engine.tasks[1].messages, house.engine.tasks[2].messages
    assert [message.text for message in before] == ["see @a\n\ncontent of a", "I have seen it", "and b?", "that too"]
    assert [message.text for message in after] == [f"{engine.SUMMARY_HEADING}\n\nthey looked at files", "that too", "go on"]
    assert house.engine.tasks[1].purpose is events.Purpose.COMPACT
