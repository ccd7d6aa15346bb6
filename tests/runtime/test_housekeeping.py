"""Retention: a session is pruned when a run of it has ended, and all of them in rounds that nothing keeps from coming."""

import asyncio

import pytest
from tests.runtime.parts import SESSION, SUCCESS, MakeRuntime, finish_at_once

from switchtower.core import errors, events
from switchtower.core.ports import engine, journal
from switchtower.runtime.lane_items import RuntimeLimits


async def _emit_hundred_words(task: engine.Task, context: engine.RunContext) -> engine.RunResult:
    for number in range(100):
        await context.emit(events.TextDelta(f"{number} "))
    await context.emit(events.MessageCompleted(message_id="asst_1", text="all of it"))
    return SUCCESS


async def test_a_session_is_pruned_after_its_run(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(_emit_hundred_words, retention=journal.Retention(10, 0))
    outlet = await house.start_session()
    await house.send()
    await outlet.wait_for_event(events.RunCompleted)
    await house.journal.wait_until(lambda: house.journal.prunings == [SESSION])
    async with asyncio.timeout(60):
        while await house.journal.find_gap(SESSION, 0) is None:
            await asyncio.sleep(0)
    kept = [entry.kind for entry in await house.list_stored()]
    assert kept.count("text.delta") < 10
    assert [kind for kind in kept if kind != "text.delta"] == [kind for kind in outlet.kinds if kind != "text.delta"]


async def test_the_round_over_all_sessions_comes_while_runs_keep_ending(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(finish_at_once, limits=RuntimeLimits(retention_interval=0.05))
    outlet = await house.start_session()
    async with asyncio.timeout(60):
        count = 0
        while None not in house.journal.prunings:
            count += 1
            await house.send()
            await outlet.wait_for_event(events.RunCompleted, count)
    assert SESSION in house.journal.prunings


@pytest.mark.parametrize("problem", [errors.JournalUnavailable("full"), RuntimeError("a bug of the store")])
async def test_a_failed_pruning_ends_neither_housekeeping_nor_the_stop(make_runtime: MakeRuntime, problem: Exception) -> None:
    house = await make_runtime(finish_at_once)
    outlet = await house.start_session()
    house.journal.failing_prunings = [problem]
    for count in (1, 2):
        await house.send()
        await outlet.wait_for_event(events.RunCompleted, count)
        await house.journal.wait_until(lambda count=count: len(house.journal.prunings) == count)
    async with asyncio.timeout(60):
        await house.runtime.stop()
