"""An engine that consults people: answers, expiry, and steps that are stopped while the run goes on."""

import asyncio

from tests.runtime.parts import SESSION, SUCCESS, MakeRuntime

from switchtower.core import commands, events
from switchtower.core.ports import engine
from switchtower.testing.session_driver import OWNER

FAR = 2**53


def make_consulting_engine(answers: list[engine.DialogAnswer], expires_at_ms: int = FAR) -> object:
    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        answers.append(await desk.open_dialog(events.Dialog("", "select", "Which?", expires_at_ms, options=("a", "b"))))
        return SUCCESS

    return work


async def test_an_answer_reaches_who_asked(make_runtime: MakeRuntime) -> None:
    answers: list[engine.DialogAnswer] = []
    house = await make_runtime(make_consulting_engine(answers))  # type: ignore[arg-type]
    outlet = await house.start_session()
    await house.send()
    dialog = (await outlet.wait_for_event(events.DialogOpened)).dialog

    await house.ask(commands.AnswerDialog(session_id=SESSION, actor=OWNER, dialog_id=dialog.id, response={"value": "b"}))
    await outlet.wait_for_event(events.RunCompleted)

    assert answers == [engine.DialogAnswer({"value": "b"})]


async def test_nobodys_answer_is_an_answer_too(make_runtime: MakeRuntime) -> None:
    answers: list[engine.DialogAnswer] = []
    house = await make_runtime(make_consulting_engine(answers, expires_at_ms=0))  # type: ignore[arg-type]
    outlet = await house.start_session()
    await house.send()

    await outlet.wait_for_event(events.RunCompleted)

    assert answers == [engine.DialogAnswer(None, "expired")]


async def test_a_stopped_step_is_told_and_the_run_goes_on(make_runtime: MakeRuntime) -> None:
    stopped: list[str] = []
    waiting = asyncio.Event()

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        try:
            await desk.run_step("retry", wait())
        except engine.StepCancelled as step:
            stopped.append(str(step))
        return SUCCESS

    house = await make_runtime(work)
    outlet = await house.start_session()
    await house.send()
    await waiting.wait()

    await house.ask(commands.StopStep(session_id=SESSION, actor=OWNER, step="compaction"))  # not what is under way
    await house.ask(commands.StopStep(session_id=SESSION, actor=OWNER, step="retry"))
    completed = await outlet.wait_for_event(events.RunCompleted)

    assert stopped == ["retry"]
    assert completed.outcome is events.Outcome.SUCCESS


async def test_a_cancelled_run_cancels_the_step_it_is_in(make_runtime: MakeRuntime) -> None:
    ended = asyncio.Event()
    waiting = asyncio.Event()

    async def wait() -> None:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await desk.run_step("retry", wait())
        return SUCCESS

    house = await make_runtime(work)
    outlet = await house.start_session()
    await house.send()
    await waiting.wait()

    await house.ask(commands.CancelRun(session_id=SESSION, actor=OWNER))
    completed = await outlet.wait_for_event(events.RunCompleted)

    assert ended.is_set()
    assert completed.outcome is events.Outcome.CANCELLED


async def test_who_watches_hears_of_every_session_but_not_of_its_pieces(make_runtime: MakeRuntime) -> None:
    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await desk.emit(events.TextDelta("piece"))
        return SUCCESS

    house = await make_runtime(work)
    heard: list[tuple[str, type]] = []
    stop = house.runtime.watch(lambda session, event: heard.append((session.id, type(event))))
    outlet = await house.start_session()
    await house.send()
    await outlet.wait_for_event(events.RunCompleted)
    stop()
    await house.ask(commands.LoadSession(session_id=SESSION, actor=OWNER))

    assert heard == [(SESSION, events.SessionStarted), (SESSION, events.RunStarted), (SESSION, events.RunCompleted)]
