"""A gated call goes on with the first answer to its question, whoever gives it, and with no other call's."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from tests.runtime.parts import RecordingSubscriber, RuntimeHarness, cancel, decide, work_until_cancelled

from switchtower.core import commands, events
from switchtower.core import errors as core_errors
from switchtower.core.ports import session_service
from switchtower.protocols.relay import errors, wire_values
from switchtower.protocols.relay.host.gate import Gate

REQUEST = "2f1e4a52-8f2f-4c6a-9a53-0c6a2f9d1b11"
APPROVAL = wire_values.parse_request_id(REQUEST)


@pytest.fixture
async def runtime_harness() -> AsyncIterator[RuntimeHarness]:
    house = RuntimeHarness(work_until_cancelled)
    await house.open()
    yield house
    await house.close()


async def start_run(runtime_harness: RuntimeHarness, session_id: str) -> tuple[str, RecordingSubscriber]:
    outlet = await runtime_harness.start_session(session_id)
    return await runtime_harness.send(session_id=session_id), outlet


def pass_request(gate: Gate, session_id: str, run_id: str, request_id: str = REQUEST) -> "asyncio.Task[None]":
    going = gate.wait_for_approval(
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
async def test_a_call_waits_for_its_decision(
    runtime_harness: RuntimeHarness, verdict: events.Verdict, refusal: str | None
) -> None:
    gate = Gate(runtime_harness.runtime, 60_000)
    run_id, outlet = await start_run(runtime_harness, "sess_1")
    call = pass_request(gate, "sess_1", run_id)
    asked = (await outlet.wait_for_event(events.ApprovalRequested)).approval
    assert (asked.id, asked.details) == (APPROVAL, {"tool": "rpc.bash", "args": {"cmd": "make"}})
    assert wire_values.format_request_id(asked.id) == REQUEST, "relay: the question has the call's own id"
    assert not call.done()

    await runtime_harness.ask(decide(asked.id, verdict, "sess_1"))

    async with asyncio.timeout(60):
        if refusal is None:
            await call
        else:
            with pytest.raises(errors.RelayError, match=refusal):
                await call
    gate.close()


async def test_nobody_s_decision_in_time_is_a_refusal(runtime_harness: RuntimeHarness) -> None:
    gate = Gate(runtime_harness.runtime, 20)
    run_id, _ = await start_run(runtime_harness, "sess_1")
    async with asyncio.timeout(60):
        with pytest.raises(errors.RelayError, match="nobody decided"):
            await pass_request(gate, "sess_1", run_id)
    gate.close()


async def test_the_run_s_end_is_the_question_s(runtime_harness: RuntimeHarness) -> None:
    gate = Gate(runtime_harness.runtime, 60_000)
    run_id, outlet = await start_run(runtime_harness, "sess_1")
    call = pass_request(gate, "sess_1", run_id)
    await outlet.wait_for_event(events.ApprovalRequested)
    await runtime_harness.ask(cancel("sess_1"))
    async with asyncio.timeout(60):
        with pytest.raises(errors.RelayError, match="withdrawn"):
            await call
    gate.close()


async def test_two_sessions_may_be_asked_under_one_id(runtime_harness: RuntimeHarness) -> None:
    gate = Gate(runtime_harness.runtime, 60_000)
    calls = {}
    for session_id in ("sess_1", "sess_2"):
        run_id, outlet = await start_run(runtime_harness, session_id)
        calls[session_id] = pass_request(gate, session_id, run_id)
        await outlet.wait_for_event(events.ApprovalRequested)

    await runtime_harness.ask(decide(APPROVAL, events.Verdict.DENY_CONTINUE, "sess_2"))
    async with asyncio.timeout(60):
        with pytest.raises(errors.RelayError, match="denied"):
            await calls["sess_2"]
        assert not calls["sess_1"].done()
        await runtime_harness.ask(decide(APPROVAL, session_id="sess_1"))
        await calls["sess_1"]
    gate.close()


async def test_a_second_call_under_an_id_is_refused_and_the_first_goes_on(runtime_harness: RuntimeHarness) -> None:
    gate = Gate(runtime_harness.runtime, 60_000)
    run_id, outlet = await start_run(runtime_harness, "sess_1")
    first = pass_request(gate, "sess_1", run_id)
    await outlet.wait_for_event(events.ApprovalRequested)
    async with asyncio.timeout(60):
        with pytest.raises(errors.RelayError, match="already in use"):
            await pass_request(gate, "sess_1", run_id)
        await runtime_harness.ask(decide(APPROVAL, session_id="sess_1"))
        await first
        with pytest.raises(core_errors.IdentityConflict):
            await pass_request(gate, "sess_1", run_id)
    gate.close()


async def test_an_id_that_cannot_be_spelled_is_refused(runtime_harness: RuntimeHarness) -> None:
    gate = Gate(runtime_harness.runtime, 60_000)
    run_id, outlet = await start_run(runtime_harness, "sess_1")
    with pytest.raises(errors.RelayError):
        await pass_request(gate, "sess_1", run_id, "😀" * 128)
    assert outlet.list_events(events.ApprovalRequested) == []
    gate.close()


async def test_a_gate_that_closes_lets_nobody_wait(runtime_harness: RuntimeHarness) -> None:
    gate = Gate(runtime_harness.runtime, 60_000)
    run_id, outlet = await start_run(runtime_harness, "sess_1")
    call = pass_request(gate, "sess_1", run_id)
    await outlet.wait_for_event(events.ApprovalRequested)
    gate.close()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await call
    await runtime_harness.ask(commands.WithdrawApproval(session_id="sess_1", approval_id=APPROVAL, reason="closed"))


# What is removed before it is read


class ForgetfulSessionService:
    """A tower whose subscribers fall behind, once each time they are told of such an event."""

    def __init__(self, runtime_harness: RuntimeHarness, *kinds: type[events.Event]) -> None:
        self._runtime = runtime_harness.runtime
        self.kinds = [kind.kind for kind in kinds]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def attach(self, session_id: str, after_seq: int, outlet: session_service.Subscriber, **options: Any) -> None:
        self._runtime.attach(session_id, after_seq, GappedSessionService(self, outlet), **options)


class GappedSessionService:
    is_ready = True

    def __init__(self, forgetful: ForgetfulSessionService, inner: session_service.Subscriber) -> None:
        self._forgetful = forgetful
        self._inner = inner
        self._over = False

    def deliver(self, batch: session_service.Batch) -> None:
        found = [entry.kind for entry in batch.entries if entry.kind in self._forgetful.kinds]
        if found and not self._over:
            self._over = True
            self._forgetful.kinds.remove(found[0])
            self._inner.on_gap(batch.session_id)
        elif not self._over:
            self._inner.deliver(batch)

    def on_gap(self, session_id: str) -> None:
        raise AssertionError("nothing is removed here")


async def test_a_hole_behind_the_question_is_stepped_over(runtime_harness: RuntimeHarness) -> None:
    forgetful = ForgetfulSessionService(runtime_harness, events.ApprovalRequested)
    gate = Gate(cast(session_service.SessionService, forgetful), 60_000)
    run_id, outlet = await start_run(runtime_harness, "sess_1")
    call = pass_request(gate, "sess_1", run_id)
    await outlet.wait_for_event(events.ApprovalRequested)
    await outlet.wait_until(lambda: forgetful.kinds == [])
    await runtime_harness.ask(decide(APPROVAL, session_id="sess_1"))
    async with asyncio.timeout(60):
        await call
    gate.close()


@pytest.mark.parametrize(
    ("end", "event", "refusal"),
    [
        (decide(APPROVAL), events.ApprovalDecided, None),
        (decide(APPROVAL, events.Verdict.DENY_CONTINUE), events.ApprovalDecided, "denied"),
        (
            commands.WithdrawApproval(session_id="sess_1", approval_id=APPROVAL, reason="for a reason"),
            events.ApprovalWithdrawn,
            "withdrawn: for a reason",
        ),
    ],
)
async def test_an_answer_in_a_hole_is_looked_up(
    runtime_harness: RuntimeHarness, end: commands.AnyCommand, event: type[events.Event], refusal: str | None
) -> None:
    gate = Gate(cast(session_service.SessionService, ForgetfulSessionService(runtime_harness, event)), 60_000)
    run_id, outlet = await start_run(runtime_harness, "sess_1")
    call = pass_request(gate, "sess_1", run_id)
    await outlet.wait_for_event(events.ApprovalRequested)
    await runtime_harness.ask(end)
    async with asyncio.timeout(60):
        if refusal is None:
            await call
        else:
            with pytest.raises(errors.RelayError, match=refusal):
                await call
    gate.close()


async def test_nobody_is_followed_when_nobody_waits(runtime_harness: RuntimeHarness) -> None:
    gate = Gate(runtime_harness.runtime, 60_000)
    run_id, outlet = await start_run(runtime_harness, "sess_1")
    feed = runtime_harness.runtime._get_lane("sess_1").feed
    assert feed.cursors == 1
    call = pass_request(gate, "sess_1", run_id)
    await outlet.wait_for_event(events.ApprovalRequested)
    assert feed.cursors == 2
    await runtime_harness.ask(decide(APPROVAL, session_id="sess_1"))
    async with asyncio.timeout(60):
        await call
    assert feed.cursors == 1
    gate.close()
