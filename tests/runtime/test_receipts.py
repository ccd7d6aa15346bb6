"""Ask once, run once: the same identity has the same outcome, at the same moment, later, and after a restart."""

import asyncio

import msgspec
import pytest
from tests.runtime.parts import SESSION, MakeRuntime, cancel, send, work_until_cancelled

from switchtower.core import errors, events


async def test_the_same_message_sent_a_hundred_times_at_once_starts_one_run(make_runtime: MakeRuntime) -> None:
    house = await make_runtime()
    outlet = await house.start_session()
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*(house.start_submit(send(idempotency_key="msg_1")) for _ in range(100)))
    assert len({outcome["run_id"] for outcome in outcomes}) == 1
    await outlet.wait_for_event(events.RunCompleted)
    assert outlet.kinds.count("run.started") == 1
    assert len(house.engine.tasks) == 1


async def test_a_message_that_is_repeated_after_a_restart_gets_the_first_answer(make_runtime: MakeRuntime) -> None:
    before = await make_runtime()
    outlet = await before.start_session()
    run_id = await before.send(idempotency_key="msg_1")
    await outlet.wait_for_event(events.RunCompleted)

    after = await make_runtime(journal_=before.journal.inner)
    assert await after.send(idempotency_key="msg_1") == run_id
    assert after.engine.tasks == []


async def test_the_same_identity_with_another_text_is_refused(make_runtime: MakeRuntime) -> None:
    house = await make_runtime()
    outlet = await house.start_session()
    await house.send("one", idempotency_key="msg_1")
    await outlet.wait_for_event(events.RunCompleted)
    with pytest.raises(errors.IdentityConflict):
        await house.send("two", idempotency_key="msg_1")
    assert outlet.kinds.count("run.started") == 1


async def test_a_receipt_is_forgotten_after_its_time(make_runtime: MakeRuntime) -> None:
    now_ms = 1_000_000
    house = await make_runtime(receipt_ttl_ms=1_000, clock=lambda: now_ms)
    outlet = await house.start_session()
    first = await house.send(idempotency_key="msg_1")
    await outlet.wait_for_event(events.RunCompleted)
    now_ms += 999
    assert await house.send(idempotency_key="msg_1") == first
    now_ms += 1
    second = await house.send(idempotency_key="msg_1")
    assert second != first
    await outlet.wait_for_event(events.RunCompleted, count=2)
    assert await house.send(idempotency_key="msg_1") == second


async def test_an_outcome_without_an_event_is_remembered_too(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(work_until_cancelled)
    await house.start_session()
    run_id = await house.send()
    house.journal.gate.clear()
    first = house.start_submit(cancel())
    second = house.start_submit(msgspec.structs.replace(cancel(), idempotency_key="cancel_1", run_id=run_id))
    house.journal.gate.set()
    async with asyncio.timeout(60):
        await asyncio.gather(first, second)
    assert await house.journal.find_receipt(SESSION, "cancel_1", 0) is not None
    # The run is over by now or will be; the same request still has the same outcome.
    assert (await house.ask(msgspec.structs.replace(cancel(), idempotency_key="cancel_1", run_id=run_id)))["replayed"]
