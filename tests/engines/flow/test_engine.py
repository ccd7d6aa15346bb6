"""Flows that wait for people and agents, directed by the engine: every turn that a decision or a restart can give them."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.engines.flow.recording import Agents, RecordingDesk, Runtimes, task
from tests.engines.flow.runtime.stage import document, edge, node

from switchtower.core import engine, events
from switchtower.core.events import Outcome, Verdict
from switchtower.core.redact import MARK
from switchtower.engines.flow import calls, ports
from switchtower.engines.flow.engine import FlowEngine

ASKS = document(
    [
        node("first", "work", text="a"),
        node("ask", "approval", title="Go?", message="Really?"),
        node("last", "work", by="$step.ask.by"),
    ],
    [edge("first", "ask"), edge("ask", "last")],
)
ASKS_WITH_A_WAY_OUT = document(
    [node("ask", "approval"), node("yes", "work"), node("no", "work", why="$step.ask.error.message")],
    [edge("ask", "yes"), edge("ask", "no", on="failure")],
)
WORKS = document([node("do", "agent.run", prompt="say: hello", retries=1)])
SUCCESS = ports.AgentEnd(run_id="run_2", outcome=Outcome.SUCCESS, summary="done", text="hello", tokens=5, cost=0.5)
FAILED = ports.AgentEnd(run_id="run_2", outcome=Outcome.FAILED, summary="tests failed", text="sorry")
DENIED = ports.AgentEnd(run_id="run_2", outcome=Outcome.DENIED, summary="no", text="")


def begin(
    given: engine.Task, desk: RecordingDesk, runtimes: Runtimes | None = None, agents: Agents | None = None
) -> "asyncio.Task[engine.Result]":
    engine_ = FlowEngine(runtimes or Runtimes(), agents or Agents())
    work: Coroutine[Any, Any, engine.Result] = engine_.run(given, desk)
    return asyncio.create_task(work)


async def to_the_end(running: "asyncio.Task[engine.Result]") -> engine.Result:
    async with asyncio.timeout(60):
        return await running


async def decided(desk: RecordingDesk, verdict: Verdict | None, comment: str | None = None) -> None:
    (approval_id,) = await desk.questions(1)
    desk.answer(approval_id, verdict, comment)


def error_of(desk: RecordingDesk) -> dict[str, Any]:
    outputs = desk.ends["run_1"].outputs
    assert outputs is not None
    error: dict[str, Any] = outputs["summary"]["error"]
    return error


async def test_a_flow_waits_for_a_decision_and_goes_on_with_what_was_said() -> None:
    desk, runtimes = RecordingDesk(), Runtimes()
    running = begin(task(ASKS), desk, runtimes)
    await decided(desk, Verdict.APPROVE, "fine")
    result = await to_the_end(running)

    assert (result.outcome, result.exit_code, result.summary) == (Outcome.SUCCESS, 0, "staged: completed, 3 steps")
    (question,) = desk.asked.values()
    assert (question.title, question.summary, question.kind, question.call_id) == ("Go?", "Really?", "flow", "step:ask:0")
    assert desk.ends["step:ask:0"].outputs == {"approved": True, "comment": "fine", "by": "ann", "via": "app"}
    assert desk.ends["step:last:0"].outputs == {"by": "ann"}
    assert desk.logs("step:first:0") == "[info] first works\n"
    asked = next(event for event in desk.told if isinstance(event, events.ToolCalled) and event.tool == "approval")
    assert asked.args["approval_id"] == next(iter(desk.asked))


@pytest.mark.parametrize(
    ("verdict", "message"),
    [(Verdict.DENY_CONTINUE, "denied by ann: not today"), (None, "nobody decided in time")],
    ids=["denied", "expired"],
)
async def test_a_no_fails_the_step_and_with_it_the_flow(verdict: Verdict | None, message: str) -> None:
    desk, runtimes = RecordingDesk(), Runtimes()
    running = begin(task(ASKS), desk, runtimes)
    await decided(desk, verdict, "not today")
    result = await to_the_end(running)

    assert (result.outcome, result.exit_code) == (Outcome.FAILED, 1)
    assert (error_of(desk)["code"], error_of(desk)["message"]) == (2001, message)
    assert runtimes.ran == ["first"]


async def test_a_no_is_followed_where_the_flow_says_so() -> None:
    desk, runtimes = RecordingDesk(), Runtimes()
    running = begin(task(ASKS_WITH_A_WAY_OUT), desk, runtimes)
    await decided(desk, Verdict.DENY_CONTINUE)
    result = await to_the_end(running)

    assert (result.outcome, runtimes.ran) == (Outcome.SUCCESS, ["no"])
    assert desk.ends["step:no:0"].outputs == {"why": "denied by ann"}


async def test_deny_and_stop_ends_the_flow_whatever_its_edges_say() -> None:
    desk, runtimes = RecordingDesk(), Runtimes()
    running = begin(task(ASKS_WITH_A_WAY_OUT), desk, runtimes)
    await decided(desk, Verdict.DENY_STOP, "enough")
    result = await to_the_end(running)

    assert (result.outcome, result.summary, result.exit_code) == (Outcome.DENIED, "staged was denied by ann", 1)
    assert runtimes.ran == []
    assert desk.called == ["run_1", "step:ask:0"]
    assert error_of(desk)["message"] == "denied by ann: enough"
    assert error_of(desk)["data"]["step_id"] == "ask"
    assert desk.ends["step:ask:0"].text.startswith("ask: failed: denied by ann: enough")
    flow_end = desk.ends["run_1"].outputs
    assert flow_end is not None
    assert (flow_end["summary"]["completed_steps"], flow_end["summary"]["failed_steps"]) == (0, 1)


async def test_deny_and_stop_takes_back_what_else_was_asked() -> None:
    both = document([node("one", "approval"), node("two", "approval")])
    desk = RecordingDesk()
    running = begin(task(both), desk)
    first, second = await desk.questions(2)
    desk.answer(second, Verdict.DENY_STOP)

    assert (await to_the_end(running)).outcome is Outcome.DENIED
    assert desk.withdrawn == [first]


async def test_two_questions_wait_side_by_side_and_are_decided_in_any_order() -> None:
    both = document(
        [node("one", "approval"), node("two", "approval"), node("after", "work", a="$step.one.comment", b="$step.two.comment")],
        [edge("one", "after"), edge("two", "after")],
    )
    desk = RecordingDesk()
    running = begin(task(both), desk)
    first, second = await desk.questions(2)
    desk.answer(second, Verdict.APPROVE, "second")
    desk.answer(first, Verdict.APPROVE, "first")

    assert (await to_the_end(running)).outcome is Outcome.SUCCESS
    assert desk.ends["step:after:0"].outputs == {"a": "first", "b": "second"}


async def test_more_questions_than_steps_may_run_at_once_take_nobody_s_turn() -> None:
    nodes = [*(node(f"ask{number}", "approval") for number in range(9)), node("work", "work")]
    desk, runtimes = RecordingDesk(), Runtimes()
    running = begin(task(document(nodes)), desk, runtimes)
    for approval_id in await desk.questions(9):
        desk.answer(approval_id, Verdict.APPROVE)

    assert (await to_the_end(running)).outcome is Outcome.SUCCESS
    assert runtimes.ran == ["work"]


async def test_a_question_out_of_time_is_taken_back_and_asked_again_when_there_is_another_try() -> None:
    desk = RecordingDesk()
    running = begin(task(document([node("ask", "approval", timeout_ms=1, retries=1)])), desk)
    result = await to_the_end(running)

    assert (result.outcome, result.exit_code) == (Outcome.FAILED, 1)
    assert desk.withdrawn == list(desk.asked)
    assert len(desk.asked) == 2
    assert error_of(desk)["data"]["cause"] == "Timeout"


@pytest.mark.parametrize("pausing", [False, True])
async def test_a_cancelled_flow_takes_back_its_questions_and_agents_unless_it_goes_on_later(pausing: bool) -> None:
    desk, agents = RecordingDesk(), Agents()
    running = begin(task(document([node("ask", "approval"), node("do", "agent.run", prompt="x")])), desk, agents=agents)
    (asked,) = await desk.questions(1)
    await agents.working.wait()
    desk.is_pausing = pausing
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await to_the_end(running)

    assert desk.withdrawn == ([] if pausing else [asked])
    assert agents.stopped == ([] if pausing else [agents.orders[0].session_id])
    assert set(desk.ends) == (set() if pausing else {"step:ask:0", "step:do:0", "run_1"}), "a cancelled step has its end"


# Agents


async def test_an_agent_does_a_step_and_its_last_words_are_the_outputs() -> None:
    desk, agents = RecordingDesk(), Agents(SUCCESS)
    given = node("do", "agent.run", prompt="$input.what", model="m", acceptance=["true"], max_turns="3", worktree="yes")
    told = document([given, node("after", "work", text="$step.do.text")], [edge("do", "after")], what="string")
    result = await to_the_end(begin(task(told, inputs={"what": "say: hello"}), desk, agents=agents))

    assert result.outcome is Outcome.SUCCESS
    (order,) = agents.orders
    assert (order.prompt, order.model, order.worktree, order.title) == ("say: hello", "m", True, "staged: do")
    assert order.acceptance == (events.Criterion(id="check-1", check="true"),)
    assert order.budget == events.Budget(max_turns=3)
    assert order.by == events.Actor(name="flow staged", via="flow")
    assert order.metadata == {"flow_session": "sess_1", "step": "do", "attempt": 0}
    outputs = desk.ends["step:do:0"].outputs
    assert outputs is not None
    assert outputs["session_id"] == order.session_id
    assert (outputs["text"], outputs["outcome"], outputs["tokens"], outputs["cost"]) == ("hello", "success", 5, 0.5)
    assert desk.ends["step:after:0"].outputs == {"text": "hello"}


@pytest.mark.parametrize("first", [FAILED, ports.Refused("the disk is full", retriable=True)], ids=["failed", "refused"])
async def test_another_try_of_an_agent_is_another_session(first: ports.AgentEnd | ports.Refused) -> None:
    desk, agents = RecordingDesk(), Agents(first, SUCCESS)
    result = await to_the_end(begin(task(WORKS), desk, agents=agents))

    assert result.outcome is Outcome.SUCCESS
    assert len({order.session_id for order in agents.orders}) == 2
    assert [order.metadata["attempt"] for order in agents.orders] == [0, 1]


@pytest.mark.parametrize("end", [DENIED, ports.Refused("there is no such model")], ids=["denied", "refused"])
async def test_what_would_come_again_is_not_tried_again(end: ports.AgentEnd | ports.Refused) -> None:
    desk, agents = RecordingDesk(), Agents(end)
    result = await to_the_end(begin(task(WORKS), desk, agents=agents))

    assert (result.outcome, result.exit_code, len(agents.orders)) == (Outcome.FAILED, 1, 1)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"prompt": " "},
        {"prompt": ["x"]},
        {"prompt": "x", "acceptance": [3]},
        {"prompt": "x", "acceptance": {"id": "a"}},
        {"prompt": "x", "max_turns": "many"},
        {"prompt": "x", "model": {}},
    ],
    ids=str,
)
async def test_an_agent_is_not_asked_for_what_makes_no_sense(given: dict[str, Any]) -> None:
    desk, agents = RecordingDesk(), Agents()
    told = document([{"id": "do", "type": "agent.run", "with": given}])
    result = await to_the_end(begin(task(told), desk, agents=agents))

    assert (result.outcome, agents.orders) == (Outcome.FAILED, [])
    assert error_of(desk)["data"]["step_id"] == "do"


# After a restart


def before(*told: engine.FlowEvent) -> tuple[engine.FlowEvent, ...]:
    return (events.ToolCalled("run_1", "flow", {"flow": "staged"}), *told)


def called(step: str, kind: str, attempt: int = 0, **more: Any) -> events.ToolCalled:
    return events.ToolCalled(calls.id_of(step, attempt), kind, {"step": step, "attempt": attempt, "with": {}, **more})


def finished(step: str, **outputs: Any) -> events.ToolFinished:
    return events.ToolFinished(calls.id_of(step, 0), "work", 1, f"{step}: succeeded", outputs=outputs)


FIRST_IS_DONE = (called("first", "work"), finished("first", text="a"))
ASKED = called("ask", "approval", approval_id="appr_77")


def verdict(given: Verdict) -> events.ApprovalDecided:
    return events.ApprovalDecided(approval_id="appr_77", verdict=given, by=events.Actor(name="bob", via="cli"))


async def test_the_same_question_is_waited_for() -> None:
    desk, runtimes = RecordingDesk(), Runtimes()
    running = begin(task(ASKS, steps=before(*FIRST_IS_DONE, ASKED)), desk, runtimes)
    assert await desk.questions(1) == ["appr_77"]
    desk.answer("appr_77", Verdict.APPROVE)
    result = await to_the_end(running)

    assert (result.outcome, result.summary, runtimes.ran) == (Outcome.SUCCESS, "staged: completed, 3 steps", ["last"])
    assert desk.called == ["step:last:0"]


async def test_what_was_decided_just_before_counts_and_nobody_is_asked_again() -> None:
    desk, runtimes = RecordingDesk(), Runtimes()
    steps = before(*FIRST_IS_DONE, ASKED, verdict(Verdict.APPROVE))
    result = await to_the_end(begin(task(ASKS, steps=steps), desk, runtimes))

    assert (result.outcome, runtimes.ran, desk.asked) == (Outcome.SUCCESS, ["last"], {})
    assert desk.ends["step:last:0"].outputs == {"by": "bob"}


async def test_a_deny_and_stop_of_just_before_ends_the_flow() -> None:
    desk, runtimes = RecordingDesk(), Runtimes()
    result = await to_the_end(begin(task(ASKS_WITH_A_WAY_OUT, steps=before(ASKED, verdict(Verdict.DENY_STOP))), desk, runtimes))

    assert (result.outcome, runtimes.ran, desk.asked) == (Outcome.DENIED, [], {})


async def test_an_expiry_of_just_before_fails_the_step() -> None:
    desk, runtimes = RecordingDesk(), Runtimes()
    steps = before(*FIRST_IS_DONE, ASKED, events.ApprovalExpired(approval_id="appr_77"))
    result = await to_the_end(begin(task(ASKS, steps=steps), desk, runtimes))

    assert (result.outcome, error_of(desk)["message"], runtimes.ran) == (Outcome.FAILED, "nobody decided in time", [])


async def test_a_question_that_was_taken_back_just_before_is_out_of_time() -> None:
    desk = RecordingDesk(withdrawn=["appr_77"])
    asks_twice = document([node("ask", "approval", retries=1)])
    running = begin(task(asks_twice, steps=before(ASKED)), desk)
    (again,) = await desk.questions(1)
    desk.answer(again, Verdict.APPROVE)
    result = await to_the_end(running)

    assert result.outcome is Outcome.SUCCESS
    assert again != "appr_77"
    assert [end.is_error for end in desk.ends.values()] == [True, False, False]


async def test_the_same_session_is_waited_for() -> None:
    desk, agents = RecordingDesk(), Agents(SUCCESS)
    steps = before(called("do", "agent.run", 1, session_id="sess_77"))
    result = await to_the_end(begin(task(WORKS, steps=steps), desk, agents=agents))

    assert (result.outcome, [order.session_id for order in agents.orders]) == (Outcome.SUCCESS, ["sess_77"])
    assert desk.called == []


async def test_a_step_that_was_under_way_is_told_as_failed_and_tried_again_when_the_flow_says_so() -> None:
    twice = document([node("ask", "approval"), node("once", "work"), node("twice", "work", retries=1), node("sorry", "work")])
    twice["graph"]["edges"] = [edge("once", "sorry", on="failure")]
    desk, runtimes = RecordingDesk(), Runtimes()
    running = begin(task(twice, steps=before(called("once", "work"), called("twice", "work"), ASKED)), desk, runtimes)
    (asked,) = await desk.questions(1)
    desk.answer(asked, Verdict.APPROVE)
    result = await to_the_end(running)

    assert result.outcome is Outcome.SUCCESS
    assert sorted(runtimes.ran) == ["sorry", "twice"]
    assert "nobody knows what became of it" in desk.ends["step:once:0"].text
    assert [desk.ends[f"step:twice:{attempt}"].is_error for attempt in (0, 1)] == [True, False]


@pytest.mark.parametrize("steps", [(), before()], ids=["before its first word", "after it"])
async def test_a_flow_whose_inputs_held_a_secret_fails_and_says_why(steps: tuple[engine.FlowEvent, ...]) -> None:
    needs = document([node("ask", "approval"), node("use", "work", key="$input.password")], password="string")
    desk, runtimes = RecordingDesk(), Runtimes()
    result = await to_the_end(begin(task(needs, inputs={"password": MARK}, steps=steps), desk, runtimes))

    assert (result.outcome, result.exit_code, runtimes.ran, desk.asked) == (Outcome.FAILED, 4, [], {})
    assert "held a secret" in error_of(desk)["message"]
    assert "hint: run the flow again" in result.summary


async def test_a_step_that_needs_what_was_hidden_fails_the_flow_before_anything_is_done() -> None:
    needs = document(
        [node("first", "work"), node("ask", "approval"), node("use", "work", key="$step.first.token")],
        [edge("first", "ask"), edge("ask", "use")],
    )
    desk, runtimes = RecordingDesk(), Runtimes()
    steps = before(called("first", "work"), finished("first", token=MARK), ASKED, verdict(Verdict.APPROVE))
    result = await to_the_end(begin(task(needs, steps=steps), desk, runtimes))

    assert (result.outcome, runtimes.ran) == (Outcome.FAILED, [])
    assert "`use` needs what `first` gave" in error_of(desk)["message"]


# Runtimes


async def test_a_runtime_that_lacks_a_kind_is_found_out_before_anything_runs() -> None:
    desk, runtimes = RecordingDesk(), Runtimes()
    runtimes.missing = {"code": 1002, "message": "does not support `work`", "data": {}}
    result = await to_the_end(begin(task(ASKS), desk, runtimes))

    assert (result.outcome, result.exit_code, runtimes.ran, desk.asked) == (Outcome.FAILED, 3, [], {})
    assert any(isinstance(event, events.ErrorRaised) and event.code == "FLOW_FAILED" for event in desk.told)


async def test_a_flow_of_people_alone_needs_no_runtime() -> None:
    desk, runtimes = RecordingDesk(), Runtimes()
    runtimes.missing = {"code": 3001, "message": "there is none", "data": {}}
    running = begin(task(document([node("ask", "approval")])), desk, runtimes)
    await decided(desk, Verdict.APPROVE)

    assert (await to_the_end(running)).outcome is Outcome.SUCCESS


async def test_a_runtime_that_breaks_ends_the_flow_whatever_its_edges_say() -> None:
    async def breaks(described: dict[str, Any]) -> dict[str, Any]:
        return {"error": {"code": 3001, "message": "the runtime ended", "data": {"details": {}}}}

    handled = document(
        [node("ask", "approval"), node("work", "work"), node("sorry", "work")], [edge("work", "sorry", on="failure")]
    )
    desk, runtimes = RecordingDesk(), Runtimes(breaks)
    result = await to_the_end(begin(task(handled), desk, runtimes))

    assert (result.outcome, result.exit_code, runtimes.ran) == (Outcome.FAILED, 4, ["work"])
    assert (error_of(desk)["code"], error_of(desk)["message"]) == (3001, "the runtime ended")
    assert set(desk.withdrawn) == set(desk.asked)
    assert any(isinstance(event, events.ErrorRaised) and event.code == "FLOW_BROKEN" for event in desk.told)
