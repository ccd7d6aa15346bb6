"""Large texts are redacted without holding up the loop, and a value that was hidden stays hidden over a session's events."""

import asyncio

from tests.runtime.parts import SUCCESS, MakeRuntime

from switchtower.core import events
from switchtower.core.ports import engine

VALUE = "Xk29-fQz7-Lm3p"
WORST = "a=b: token: x " * 10_000


async def test_others_have_their_turn_while_a_large_text_is_redacted(make_runtime: MakeRuntime) -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    before = 0

    async def verbose(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        nonlocal before
        await desk.emit(events.ToolCalled("call_1", "run", {"command": "make"}))
        await desk.emit(events.ToolProgressed("call_1", WORST))
        await desk.flush()
        before = turns
        await desk.emit(events.ToolFinished("call_1", "run", 1, f"{WORST}password={VALUE}"))
        await desk.flush()
        return SUCCESS

    house = await make_runtime(verbose)
    outlet = await house.start_session()
    taking = asyncio.create_task(take_turns())
    await house.send()
    await outlet.wait_for_event(events.RunCompleted)
    taking.cancel()
    finished = next(event for event in outlet.told if isinstance(event, events.ToolFinished))
    assert finished.text.endswith("password=[redacted]")
    assert before > len(WORST) // 8_192, "output is redacted in slices"
    assert turns - before > 20, "a result is redacted beside the loop"


async def test_a_value_that_a_tool_put_out_is_hidden_where_the_model_quotes_it(make_runtime: MakeRuntime) -> None:
    async def quoting(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await desk.emit(events.ToolCalled("call_1", "run", {"command": "cat conf"}))
        await desk.emit(events.ToolProgressed("call_1", f"DB_PASSWORD={VALUE}\n"))
        await desk.emit(events.ToolFinished("call_1", "run", 1, f"DB_PASSWORD={VALUE}\n"))
        for piece in ("It is ", VALUE[:5], VALUE[5:], ", I read."):
            await desk.emit(events.TextDelta(piece))
        await desk.emit(events.MessageCompleted("msg_1", f"It is {VALUE}, I read.", "", ()))
        return SUCCESS

    house = await make_runtime(quoting)
    outlet = await house.start_session()
    await house.send()
    await outlet.wait_for_event(events.RunCompleted)
    assert "".join(event.text for event in outlet.told if isinstance(event, events.TextDelta)) == "It is [redacted], I read."
    assert VALUE not in str(outlet.told)
