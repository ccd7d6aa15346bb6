"""An engine that consults people: answers, expiry, and steps that are stopped while the run goes on."""

import asyncio

from tests.runtime.parts import SESSION, SUCCESS, MakeHouse

from switchtower.core import commands, engine, events
from switchtower.testing.sessions import OWNER

FAR = 2**53


def consulting(answers: list[engine.DialogAnswer], expires_at_ms: int = FAR) -> object:
    async def work(task: engine.Task, desk: engine.Desk) -> engine.Result:
        answers.append(await desk.consult(events.Dialog("", "select", "Which?", expires_at_ms, options=("a", "b"))))
        return SUCCESS

    return work


async def test_an_answer_reaches_who_asked(make_house: MakeHouse) -> None:
    answers: list[engine.DialogAnswer] = []
    house = await make_house(consulting(answers))  # type: ignore[arg-type]
    outlet = await house.with_session()
    await house.send()
    dialog = (await outlet.next_of(events.DialogOpened)).dialog

    await house.ask(commands.AnswerDialog(session_id=SESSION, actor=OWNER, dialog_id=dialog.id, response={"value": "b"}))
    await outlet.next_of(events.RunCompleted)

    assert answers == [engine.DialogAnswer({"value": "b"})]


async def test_nobodys_answer_is_an_answer_too(make_house: MakeHouse) -> None:
    answers: list[engine.DialogAnswer] = []
    house = await make_house(consulting(answers, expires_at_ms=0))  # type: ignore[arg-type]
    outlet = await house.with_session()
    await house.send()

    await outlet.next_of(events.RunCompleted)

    assert answers == [engine.DialogAnswer(None, "expired")]


async def test_a_stopped_step_is_told_and_the_run_goes_on(make_house: MakeHouse) -> None:
    stopped: list[str] = []
    waiting = asyncio.Event()

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    async def work(task: engine.Task, desk: engine.Desk) -> engine.Result:
        try:
            await desk.unless_stopped("retry", wait())
        except engine.StepStopped as step:
            stopped.append(str(step))
        return SUCCESS

    house = await make_house(work)
    outlet = await house.with_session()
    await house.send()
    await waiting.wait()

    await house.ask(commands.StopStep(session_id=SESSION, actor=OWNER, step="compaction"))  # not what is under way
    await house.ask(commands.StopStep(session_id=SESSION, actor=OWNER, step="retry"))
    completed = await outlet.next_of(events.RunCompleted)

    assert stopped == ["retry"]
    assert completed.outcome is events.Outcome.SUCCESS


async def test_a_cancelled_run_cancels_the_step_it_is_in(make_house: MakeHouse) -> None:
    ended = asyncio.Event()
    waiting = asyncio.Event()

    async def wait() -> None:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def work(task: engine.Task, desk: engine.Desk) -> engine.Result:
        await desk.unless_stopped("retry", wait())
        return SUCCESS

    house = await make_house(work)
    outlet = await house.with_session()
    await house.send()
    await waiting.wait()

    await house.ask(commands.CancelRun(session_id=SESSION, actor=OWNER))
    completed = await outlet.next_of(events.RunCompleted)

    assert ended.is_set()
    assert completed.outcome is events.Outcome.CANCELLED


async def test_who_watches_hears_of_every_session_but_not_of_its_pieces(make_house: MakeHouse) -> None:
    async def work(task: engine.Task, desk: engine.Desk) -> engine.Result:
        await desk.emit(events.TextDelta("piece"))
        return SUCCESS

    house = await make_house(work)
    heard: list[tuple[str, type]] = []
    stop = house.runtime.watch(lambda session, event: heard.append((session.id, type(event))))
    outlet = await house.with_session()
    await house.send()
    await outlet.next_of(events.RunCompleted)
    stop()
    await house.ask(commands.LoadSession(session_id=SESSION, actor=OWNER))

    assert heard == [(SESSION, events.SessionStarted), (SESSION, events.RunStarted), (SESSION, events.RunCompleted)]
