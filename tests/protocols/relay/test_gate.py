"""A gated call goes on with the first answer to its question, whoever gives it, and with no other call's."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.runtime.parts import House, Outlet, cancel, decide, work_until_cancelled

from switchtower.core import commands, events
from switchtower.core import errors as core_errors
from switchtower.protocols.relay import errors, names
from switchtower.protocols.relay.gate import Gate

REQUEST = "2f1e4a52-8f2f-4c6a-9a53-0c6a2f9d1b11"
APPROVAL = names.approval_of(REQUEST)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House(work_until_cancelled)
    await house.open()
    yield house
    await house.close()


async def begun(house: House, session_id: str) -> tuple[str, Outlet]:
    outlet = await house.with_session(session_id)
    return await house.send(session_id=session_id), outlet


def passing(gate: Gate, session_id: str, run_id: str, request_id: str = REQUEST) -> "asyncio.Task[None]":
    going = gate.pass_through(
        session_id, run_id, request_id, tool="rpc.bash", title="Run make", args={"cmd": "make"}, subject="make"
    )
    return asyncio.get_running_loop().create_task(going)


@pytest.mark.parametrize(
    ("verdict", "refusal"),
    [
        (events.Verdict.APPROVE, None),
        (events.Verdict.DENY_CONTINUE, "denied"),
        (events.Verdict.DENY_STOP, "denied"),
    ],
)
async def test_a_call_waits_for_its_decision(house: House, verdict: events.Verdict, refusal: str | None) -> None:
    gate = Gate(house.runtime, 60_000)
    run_id, outlet = await begun(house, "sess_1")
    call = passing(gate, "sess_1", run_id)
    asked = (await outlet.next_of(events.ApprovalRequested)).approval
    assert (asked.id, asked.details) == (APPROVAL, {"tool": "rpc.bash", "args": {"cmd": "make"}})
    assert names.request_of(asked.id) == REQUEST, "relay: the question has the call's own id"
    assert not call.done()

    await house.ask(decide(asked.id, verdict, "sess_1"))

    async with asyncio.timeout(5):
        if refusal is None:
            await call
        else:
            with pytest.raises(errors.Refused, match=refusal):
                await call
    gate.close()


async def test_nobody_s_decision_in_time_is_a_refusal(house: House) -> None:
    gate = Gate(house.runtime, 20)
    run_id, _ = await begun(house, "sess_1")
    async with asyncio.timeout(5):
        with pytest.raises(errors.Refused, match="nobody decided"):
            await passing(gate, "sess_1", run_id)
    gate.close()


async def test_the_run_s_end_is_the_question_s(house: House) -> None:
    gate = Gate(house.runtime, 60_000)
    run_id, outlet = await begun(house, "sess_1")
    call = passing(gate, "sess_1", run_id)
    await outlet.next_of(events.ApprovalRequested)
    await house.ask(cancel("sess_1"))
    async with asyncio.timeout(5):
        with pytest.raises(errors.Refused, match="withdrawn"):
            await call
    gate.close()


async def test_two_sessions_may_be_asked_under_one_id(house: House) -> None:
    gate = Gate(house.runtime, 60_000)
    calls = {}
    for session_id in ("sess_1", "sess_2"):
        run_id, outlet = await begun(house, session_id)
        calls[session_id] = passing(gate, session_id, run_id)
        await outlet.next_of(events.ApprovalRequested)

    await house.ask(decide(APPROVAL, events.Verdict.DENY_CONTINUE, "sess_2"))
    async with asyncio.timeout(5):
        with pytest.raises(errors.Refused, match="denied"):
            await calls["sess_2"]
        assert not calls["sess_1"].done()
        await house.ask(decide(APPROVAL, session_id="sess_1"))
        await calls["sess_1"]
    gate.close()


async def test_a_second_call_under_an_id_is_refused_and_the_first_goes_on(house: House) -> None:
    gate = Gate(house.runtime, 60_000)
    run_id, outlet = await begun(house, "sess_1")
    first = passing(gate, "sess_1", run_id)
    await outlet.next_of(events.ApprovalRequested)
    async with asyncio.timeout(5):
        with pytest.raises(errors.Refused, match="already in use"):
            await passing(gate, "sess_1", run_id)
        await house.ask(decide(APPROVAL, session_id="sess_1"))
        await first
        with pytest.raises(core_errors.IdentityConflict):
            await passing(gate, "sess_1", run_id)
    gate.close()


async def test_an_id_that_cannot_be_spelled_is_refused(house: House) -> None:
    gate = Gate(house.runtime, 60_000)
    run_id, outlet = await begun(house, "sess_1")
    with pytest.raises(errors.Refused):
        await passing(gate, "sess_1", run_id, "😀" * 128)
    assert outlet.seen(events.ApprovalRequested) == []
    gate.close()


async def test_a_gate_that_closes_lets_nobody_wait(house: House) -> None:
    gate = Gate(house.runtime, 60_000)
    run_id, outlet = await begun(house, "sess_1")
    call = passing(gate, "sess_1", run_id)
    await outlet.next_of(events.ApprovalRequested)
    gate.close()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await call
    await house.ask(commands.WithdrawApproval(session_id="sess_1", approval_id=APPROVAL, reason="closed"))
