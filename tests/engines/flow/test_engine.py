"""Flows that wait for people and agents, directed by the engine: every turn that a decision or a restart can give them."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.engines.flow.recording import FakeFlowAgents, FakeFlowRuntimes, RecordingFlowContext, make_task
from tests.engines.flow.runtime.stage import make_document, make_edge, make_node

from switchtower.core import events
from switchtower.core.events import Outcome, Verdict
from switchtower.core.ports import engine
from switchtower.core.redact import MARK
from switchtower.engines.flow import ports, progress
from switchtower.engines.flow.engine import FlowEngine

ASKS = make_document(
    [
        make_node("first", "work", text="a"),
        make_node("ask", "approval", title="Go?", message="Really?"),
        make_node("last", "work", by="$step.ask.by"),
    ],
    [make_edge("first", "ask"), make_edge("ask", "last")],
)
ASKS_WITH_A_WAY_OUT = make_document(
    [make_node("ask", "approval"), make_node("yes", "work"), make_node("no", "work", why="$step.ask.error.message")],
    [make_edge("ask", "yes"), make_edge("ask", "no", on="failure")],
)
WORKS = make_document([make_node("do", "agent.run", prompt="say: hello", retries=1)])
SUCCESS = ports.AgentResult(run_id="run_2", outcome=Outcome.SUCCESS, summary="done", text="hello", tokens=5, cost=0.5)
FAILED = ports.AgentResult(run_id="run_2", outcome=Outcome.FAILED, summary="tests failed", text="sorry")
DENIED = ports.AgentResult(run_id="run_2", outcome=Outcome.DENIED, summary="no", text="")


def begin(
    given: engine.Task,
    context: RecordingFlowContext,
    runtimes: FakeFlowRuntimes | None = None,
    agents: FakeFlowAgents | None = None,
) -> "asyncio.Task[engine.RunResult]":
    engine_ = FlowEngine(runtimes or FakeFlowRuntimes(), agents or FakeFlowAgents())
    work: Coroutine[Any, Any, engine.RunResult] = engine_.run(given, context)
    return asyncio.create_task(work)


async def run_to_end(running: "asyncio.Task[engine.RunResult]") -> engine.RunResult:
    async with asyncio.timeout(60):
        return await running


async def decide_question(context: RecordingFlowContext, verdict: Verdict | None, comment: str | None = None) -> None:
    (approval_id,) = await context.wait_for_questions(1)
    context.answer(approval_id, verdict, comment)


def get_error(context: RecordingFlowContext) -> dict[str, Any]:
    outputs = context.ends["run_1"].outputs
    assert outputs is not None
    error: dict[str, Any] = outputs["summary"]["error"]
    return error


async def test_a_flow_waits_for_a_decision_and_goes_on_with_what_was_said() -> None:
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    running = begin(make_task(ASKS), desk, runtimes)
    await decide_question(desk, Verdict.APPROVE, "fine")
    result = await run_to_end(running)

    assert (result.outcome, result.exit_code, result.summary) == (Outcome.SUCCESS, 0, "staged: completed, 3 steps")
    (question,) = desk.asked.values()
    assert (question.title, question.summary, question.kind, question.call_id) == ("Go?", "Really?", "flow", "step:ask:0")
    assert desk.ends["step:ask:0"].outputs == {"approved": True, "comment": "fine", "by": "ann", "via": "app"}
    assert desk.ends["step:last:0"].outputs == {"by": "ann"}
    assert desk.get_logs("step:first:0") == "[info] first works\n"
    asked = next(event for event in desk.told if isinstance(event, events.ToolCalled) and event.tool == "approval")
    assert asked.args["approval_id"] == next(iter(desk.asked))


@pytest.mark.parametrize(
    ("verdict", "message"),
    [(Verdict.DENY_CONTINUE, "denied by ann: not today"), (None, "nobody decided in time")],
    ids=["denied", "expired"],
)
async def test_a_no_fails_the_step_and_with_it_the_flow(verdict: Verdict | None, message: str) -> None:
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    running = begin(make_task(ASKS), desk, runtimes)
    await decide_question(desk, verdict, "not today")
    result = await run_to_end(running)

    assert (result.outcome, result.exit_code) == (Outcome.FAILED, 1)
    assert (get_error(desk)["code"], get_error(desk)["message"]) == (2001, message)
    assert runtimes.ran == ["first"]


async def test_a_no_is_followed_where_the_flow_says_so() -> None:
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    running = begin(make_task(ASKS_WITH_A_WAY_OUT), desk, runtimes)
    await decide_question(desk, Verdict.DENY_CONTINUE)
    result = await run_to_end(running)

    assert (result.outcome, runtimes.ran) == (Outcome.SUCCESS, ["no"])
    assert desk.ends["step:no:0"].outputs == {"why": "denied by ann"}


async def test_deny_and_stop_ends_the_flow_whatever_its_edges_say() -> None:
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    running = begin(make_task(ASKS_WITH_A_WAY_OUT), desk, runtimes)
    await decide_question(desk, Verdict.DENY_STOP, "enough")
    result = await run_to_end(running)

    assert (result.outcome, result.summary, result.exit_code) == (Outcome.DENIED, "staged was denied by ann", 1)
    assert runtimes.ran == []
    assert desk.called == ["run_1", "step:ask:0"]
    assert get_error(desk)["message"] == "denied by ann: enough"
    assert get_error(desk)["data"]["step_id"] == "ask"
    assert desk.ends["step:ask:0"].text.startswith("ask: failed: denied by ann: enough")
    flow_end = desk.ends["run_1"].outputs
    assert flow_end is not None
    assert (flow_end["summary"]["completed_steps"], flow_end["summary"]["failed_steps"]) == (0, 1)


async def test_deny_and_stop_takes_back_what_else_was_asked() -> None:
    both = make_document([make_node("one", "approval"), make_node("two", "approval")])
    desk = RecordingFlowContext()
    running = begin(make_task(both), desk)
    first, second = await desk.wait_for_questions(2)
    desk.answer(second, Verdict.DENY_STOP)

    assert (await run_to_end(running)).outcome is Outcome.DENIED
    assert desk.withdrawn == [first]


async def test_two_questions_wait_side_by_side_and_are_decided_in_any_order() -> None:
    both = make_document(
        [
            make_node("one", "approval"),
            make_node("two", "approval"),
            make_node("after", "work", a="$step.one.comment", b="$step.two.comment"),
        ],
        [make_edge("one", "after"), make_edge("two", "after")],
    )
    desk = RecordingFlowContext()
    running = begin(make_task(both), desk)
    first, second = await desk.wait_for_questions(2)
    desk.answer(second, Verdict.APPROVE, "second")
    desk.answer(first, Verdict.APPROVE, "first")

    assert (await run_to_end(running)).outcome is Outcome.SUCCESS
    assert desk.ends["step:after:0"].outputs == {"a": "first", "b": "second"}


async def test_more_questions_than_steps_may_run_at_once_take_nobody_s_turn() -> None:
    nodes = [*(make_node(f"ask{number}", "approval") for number in range(9)), make_node("work", "work")]
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    running = begin(make_task(make_document(nodes)), desk, runtimes)
    for approval_id in await desk.wait_for_questions(9):
        desk.answer(approval_id, Verdict.APPROVE)

    assert (await run_to_end(running)).outcome is Outcome.SUCCESS
    assert runtimes.ran == ["work"]


async def test_a_question_out_of_time_is_taken_back_and_asked_again_when_there_is_another_try() -> None:
    desk = RecordingFlowContext()
    running = begin(make_task(make_document([make_node("ask", "approval", timeout_ms=1, retries=1)])), desk)
    result = await run_to_end(running)

    assert (result.outcome, result.exit_code) == (Outcome.FAILED, 1)
    assert desk.withdrawn == list(desk.asked)
    assert len(desk.asked) == 2
    assert get_error(desk)["data"]["cause"] == "Timeout"


@pytest.mark.parametrize("pausing", [False, True])
async def test_a_cancelled_flow_takes_back_its_questions_and_agents_unless_it_goes_on_later(pausing: bool) -> None:
    desk, agents = RecordingFlowContext(), FakeFlowAgents()
    running = begin(
        make_task(make_document([make_node("ask", "approval"), make_node("do", "agent.run", prompt="x")])), desk, agents=agents
    )
    (asked,) = await desk.wait_for_questions(1)
    await agents.working.wait()
    desk.is_pausing = pausing
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run_to_end(running)

    assert desk.withdrawn == ([] if pausing else [asked])
    assert agents.stopped == ([] if pausing else [agents.orders[0].session_id])
    assert set(desk.ends) == (set() if pausing else {"step:ask:0", "step:do:0", "run_1"}), "a cancelled step has its end"


# Agents


async def test_an_agent_does_a_step_and_its_last_words_are_the_outputs() -> None:
    desk, agents = RecordingFlowContext(), FakeFlowAgents(SUCCESS)
    given = make_node("do", "agent.run", prompt="$input.what", model="m", acceptance=["true"], max_turns="3", worktree="yes")
    told = make_document([given, make_node("after", "work", text="$step.do.text")], [make_edge("do", "after")], what="string")
    result = await run_to_end(begin(make_task(told, inputs={"what": "say: hello"}), desk, agents=agents))

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


@pytest.mark.parametrize("first", [FAILED, ports.AgentRefused("the disk is full", retriable=True)], ids=["failed", "refused"])
async def test_another_try_of_an_agent_is_another_session(first: ports.AgentResult | ports.AgentRefused) -> None:
    desk, agents = RecordingFlowContext(), FakeFlowAgents(first, SUCCESS)
    result = await run_to_end(begin(make_task(WORKS), desk, agents=agents))

    assert result.outcome is Outcome.SUCCESS
    assert len({order.session_id for order in agents.orders}) == 2
    assert [order.metadata["attempt"] for order in agents.orders] == [0, 1]


@pytest.mark.parametrize("end", [DENIED, ports.AgentRefused("there is no such model")], ids=["denied", "refused"])
async def test_what_would_come_again_is_not_tried_again(end: ports.AgentResult | ports.AgentRefused) -> None:
    desk, agents = RecordingFlowContext(), FakeFlowAgents(end)
    result = await run_to_end(begin(make_task(WORKS), desk, agents=agents))

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
    desk, agents = RecordingFlowContext(), FakeFlowAgents()
    told = make_document([{"id": "do", "type": "agent.run", "with": given}])
    result = await run_to_end(begin(make_task(told), desk, agents=agents))

    assert (result.outcome, agents.orders) == (Outcome.FAILED, [])
    assert get_error(desk)["data"]["step_id"] == "do"


# After a restart


def make_earlier_steps(*told: engine.FlowEvent) -> tuple[engine.FlowEvent, ...]:
    return (events.ToolCalled("run_1", "flow", {"flow": "staged"}), *told)


def make_call(step: str, kind: str, attempt: int = 0, **more: Any) -> events.ToolCalled:
    return events.ToolCalled(progress.make_call_id(step, attempt), kind, {"step": step, "attempt": attempt, "with": {}, **more})


def make_finished(step: str, **outputs: Any) -> events.ToolFinished:
    return events.ToolFinished(progress.make_call_id(step, 0), "work", 1, f"{step}: succeeded", outputs=outputs)


FIRST_IS_DONE = (make_call("first", "work"), make_finished("first", text="a"))
ASKED = make_call("ask", "approval", approval_id="appr_77")


def make_verdict(given: Verdict) -> events.ApprovalDecided:
    return events.ApprovalDecided(approval_id="appr_77", verdict=given, by=events.Actor(name="bob", via="cli"))


async def test_the_same_question_is_waited_for() -> None:
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    running = begin(make_task(ASKS, steps=make_earlier_steps(*FIRST_IS_DONE, ASKED)), desk, runtimes)
    assert await desk.wait_for_questions(1) == ["appr_77"]
    desk.answer("appr_77", Verdict.APPROVE)
    result = await run_to_end(running)

    assert (result.outcome, result.summary, runtimes.ran) == (Outcome.SUCCESS, "staged: completed, 3 steps", ["last"])
    assert desk.called == ["step:last:0"]


async def test_what_was_decided_just_before_counts_and_nobody_is_asked_again() -> None:
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    steps = make_earlier_steps(*FIRST_IS_DONE, ASKED, make_verdict(Verdict.APPROVE))
    result = await run_to_end(begin(make_task(ASKS, steps=steps), desk, runtimes))

    assert (result.outcome, runtimes.ran, desk.asked) == (Outcome.SUCCESS, ["last"], {})
    assert desk.ends["step:last:0"].outputs == {"by": "bob"}


async def test_a_deny_and_stop_of_just_before_ends_the_flow() -> None:
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    result = await run_to_end(
        begin(make_task(ASKS_WITH_A_WAY_OUT, steps=make_earlier_steps(ASKED, make_verdict(Verdict.DENY_STOP))), desk, runtimes)
    )

    assert (result.outcome, runtimes.ran, desk.asked) == (Outcome.DENIED, [], {})


async def test_an_expiry_of_just_before_fails_the_step() -> None:
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    steps = make_earlier_steps(*FIRST_IS_DONE, ASKED, events.ApprovalExpired(approval_id="appr_77"))
    result = await run_to_end(begin(make_task(ASKS, steps=steps), desk, runtimes))

    assert (result.outcome, get_error(desk)["message"], runtimes.ran) == (Outcome.FAILED, "nobody decided in time", [])


async def test_a_question_that_was_taken_back_just_before_is_out_of_time() -> None:
    desk = RecordingFlowContext(withdrawn=["appr_77"])
    asks_twice = make_document([make_node("ask", "approval", retries=1)])
    running = begin(make_task(asks_twice, steps=make_earlier_steps(ASKED)), desk)
    (again,) = await desk.wait_for_questions(1)
    desk.answer(again, Verdict.APPROVE)
    result = await run_to_end(running)

    assert result.outcome is Outcome.SUCCESS
    assert again != "appr_77"
    assert [end.is_error for end in desk.ends.values()] == [True, False, False]


async def test_the_same_session_is_waited_for() -> None:
    desk, agents = RecordingFlowContext(), FakeFlowAgents(SUCCESS)
    steps = make_earlier_steps(make_call("do", "agent.run", 1, session_id="sess_77"))
    result = await run_to_end(begin(make_task(WORKS, steps=steps), desk, agents=agents))

    assert (result.outcome, [order.session_id for order in agents.orders]) == (Outcome.SUCCESS, ["sess_77"])
    assert desk.called == []


async def test_a_step_that_was_under_way_is_told_as_failed_and_tried_again_when_the_flow_says_so() -> None:
    twice = make_document(
        [
            make_node("ask", "approval"),
            make_node("once", "work"),
            make_node("twice", "work", retries=1),
            make_node("sorry", "work"),
        ]
    )
    twice["graph"]["edges"] = [make_edge("once", "sorry", on="failure")]
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    running = begin(
        make_task(twice, steps=make_earlier_steps(make_call("once", "work"), make_call("twice", "work"), ASKED)), desk, runtimes
    )
    (asked,) = await desk.wait_for_questions(1)
    desk.answer(asked, Verdict.APPROVE)
    result = await run_to_end(running)

    assert result.outcome is Outcome.SUCCESS
    assert sorted(runtimes.ran) == ["sorry", "twice"]
    assert "nobody knows what became of it" in desk.ends["step:once:0"].text
    assert [desk.ends[f"step:twice:{attempt}"].is_error for attempt in (0, 1)] == [True, False]


@pytest.mark.parametrize("steps", [(), make_earlier_steps()], ids=["before its first word", "after it"])
async def test_a_flow_whose_inputs_held_a_secret_fails_and_says_why(steps: tuple[engine.FlowEvent, ...]) -> None:
    needs = make_document([make_node("ask", "approval"), make_node("use", "work", key="$input.password")], password="string")
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    result = await run_to_end(begin(make_task(needs, inputs={"password": MARK}, steps=steps), desk, runtimes))

    assert (result.outcome, result.exit_code, runtimes.ran, desk.asked) == (Outcome.FAILED, 4, [], {})
    assert "held a secret" in get_error(desk)["message"]
    assert "hint: run the flow again" in result.summary


async def test_a_step_that_needs_what_was_hidden_fails_the_flow_before_anything_is_done() -> None:
    needs = make_document(
        [make_node("first", "work"), make_node("ask", "approval"), make_node("use", "work", key="$step.first.token")],
        [make_edge("first", "ask"), make_edge("ask", "use")],
    )
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    steps = make_earlier_steps(
        make_call("first", "work"), make_finished("first", token=MARK), ASKED, make_verdict(Verdict.APPROVE)
    )
    result = await run_to_end(begin(make_task(needs, steps=steps), desk, runtimes))

    assert (result.outcome, runtimes.ran) == (Outcome.FAILED, [])
    assert "`use` needs what `first` gave" in get_error(desk)["message"]


# Runtimes


async def test_a_runtime_that_lacks_a_kind_is_found_out_before_anything_runs() -> None:
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    runtimes.missing = {"code": 1002, "message": "does not support `work`", "data": {}}
    result = await run_to_end(begin(make_task(ASKS), desk, runtimes))

    assert (result.outcome, result.exit_code, runtimes.ran, desk.asked) == (Outcome.FAILED, 3, [], {})
    assert any(isinstance(event, events.ErrorRaised) and event.code == "FLOW_FAILED" for event in desk.told)


async def test_a_flow_of_people_alone_needs_no_runtime() -> None:
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes()
    runtimes.missing = {"code": 3001, "message": "there is none", "data": {}}
    running = begin(make_task(make_document([make_node("ask", "approval")])), desk, runtimes)
    await decide_question(desk, Verdict.APPROVE)

    assert (await run_to_end(running)).outcome is Outcome.SUCCESS


async def test_a_runtime_that_breaks_ends_the_flow_whatever_its_edges_say() -> None:
    async def breaks(described: dict[str, Any]) -> dict[str, Any]:
        return {"error": {"code": 3001, "message": "the runtime ended", "data": {"details": {}}}}

    handled = make_document(
        [make_node("ask", "approval"), make_node("work", "work"), make_node("sorry", "work")],
        [make_edge("work", "sorry", on="failure")],
    )
    desk, runtimes = RecordingFlowContext(), FakeFlowRuntimes(breaks)
    result = await run_to_end(begin(make_task(handled), desk, runtimes))

    assert (result.outcome, result.exit_code, runtimes.ran) == (Outcome.FAILED, 4, ["work"])
    assert (get_error(desk)["code"], get_error(desk)["message"]) == (3001, "the runtime ended")
    assert set(desk.withdrawn) == set(desk.asked)
    assert any(isinstance(event, events.ErrorRaised) and event.code == "FLOW_BROKEN" for event in desk.told)
