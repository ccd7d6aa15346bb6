"""How far a flow had come before a restart."""

from typing import Any

import pytest
from tests.engines.flow.runtime.stage import make_document, make_edge, make_node

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.core.redact import MARK
from switchtower.engines.flow import ir, progress
from switchtower.engines.flow.runtime import failures

ANN = events.Actor(name="ann", via="app")
ERROR = {"code": 2001, "message": "no", "data": {"retriable": True, "details": {"why": "told"}, "cause": "Timeout"}}


def make_call(step: str, attempt: int = 0, kind: str = "work", **more: Any) -> events.ToolCalled:
    return events.ToolCalled(progress.make_call_id(step, attempt), kind, {"step": step, "attempt": attempt, "with": {}, **more})


def make_finished(step: str, attempt: int = 0, **more: Any) -> events.ToolFinished:
    fields: dict[str, Any] = {"outputs": {"said": "hello"}, "text": f"{step}: succeeded", **more}
    return events.ToolFinished(call_id=progress.make_call_id(step, attempt), tool="work", duration_ms=1, **fields)


def make_failed(step: str, attempt: int = 0, error: object = ERROR) -> events.ToolFinished:
    return make_finished(step, attempt, is_error=True, text="it failed", outputs={"error": error})


def compute_progress(
    nodes: list[dict[str, Any]], *told: engine.FlowEvent, edges: list[dict[str, str]] | None = None
) -> progress.FlowProgress:
    flow_began = events.ToolCalled("run_1", "flow", {"flow": "staged"})
    return progress.compute_progress(ir.parse_flow(make_document(nodes, edges)), progress.read_calls([flow_began, *told]))


def test_of_a_flow_that_told_nothing_everything_is_to_be_done() -> None:
    stands = compute_progress([make_node("one", "work")])

    assert (stands.before.ended, stands.before.attempts, stands.interrupted) == ({}, {}, [])


def test_a_step_that_ended_is_not_done_again() -> None:
    stands = compute_progress([make_node("one", "work")], make_call("one"), make_finished("one"))

    assert stands.before.ended == {"one": {"said": "hello"}}
    assert (stands.before.attempts, stands.interrupted) == ({}, [])


def test_the_last_try_counts() -> None:
    stands = compute_progress(
        [make_node("one", "work", retries=1)], make_call("one"), make_failed("one"), make_call("one", 1), make_finished("one", 1)
    )

    assert stands.before.ended == {"one": {"said": "hello"}}


def test_a_failure_that_may_pass_is_tried_again_while_tries_are_left() -> None:
    stands = compute_progress([make_node("one", "work", retries=1)], make_call("one"), make_failed("one"))

    assert (stands.before.ended, stands.before.attempts, stands.interrupted) == ({}, {"one": 1}, [])


@pytest.mark.parametrize("retries", [0, 1])
def test_the_last_failure_stays_as_it_was_told(retries: int) -> None:
    told = [event for attempt in range(retries + 1) for event in (make_call("one", attempt), make_failed("one", attempt))]
    stands = compute_progress([make_node("one", "work", retries=retries)], *told)

    failure = stands.before.ended["one"]
    assert isinstance(failure, failures.StepFailure)
    assert (failure.code, failure.message, failure.details, failure.cause) == (2001, "no", {"why": "told"}, "Timeout")
    assert (failure.step_id, failure.attempt, failure.retriable) == ("one", retries, True)


def test_a_failure_that_would_come_again_is_not_tried_again() -> None:
    error = {**ERROR, "data": {"retriable": False}}
    stands = compute_progress([make_node("one", "work", retries=3)], make_call("one"), make_failed("one", error=error))

    assert isinstance(stands.before.ended["one"], failures.StepFailure)


@pytest.mark.parametrize("error", [None, "no", {"code": "x", "message": 3, "data": []}, {"data": {"details": 3, "cause": 4}}])
def test_an_error_that_is_none_of_ours_is_a_failure_all_the_same(error: object) -> None:
    failure = compute_progress([make_node("one", "work")], make_call("one"), make_failed("one", error=error)).before.ended["one"]

    assert isinstance(failure, failures.StepFailure)
    assert (failure.code, failure.message, failure.details, failure.cause) == (2001, "it failed", {}, None)


def test_a_step_under_way_counts_as_a_failed_try() -> None:
    stands = compute_progress([make_node("one", "work")], make_call("one"))

    ((step, attempt, failure),) = stands.interrupted
    assert (step, attempt, failure.code, failure.cause, failure.retriable) == ("one", 0, 2001, "Interrupted", True)
    assert stands.before.ended == {"one": failure}


def test_a_step_under_way_is_tried_again_while_tries_are_left() -> None:
    stands = compute_progress([make_node("one", "work", retries=2)], make_call("one"), make_failed("one"), make_call("one", 1))

    assert [(step, attempt) for step, attempt, _ in stands.interrupted] == [("one", 1)]
    assert (stands.before.ended, stands.before.attempts) == ({}, {"one": 2})


@pytest.mark.parametrize("kind", ["approval", "agent.run"])
def test_people_and_agents_are_waited_for_again(kind: str) -> None:
    told = [make_call("one", 0, kind), make_failed("one"), make_call("one", 1, kind, approval_id="appr_1")]
    stands = compute_progress([make_node("one", kind, retries=1, prompt="x")], *told)

    assert (stands.before.ended, stands.before.attempts, stands.interrupted) == ({}, {"one": 1}, [])


@pytest.mark.parametrize("kind", ["dsl.emit", "finish"])
def test_what_does_nothing_outside_of_the_flow_is_done_again(kind: str) -> None:
    stands = compute_progress([make_node("one", kind)], make_call("one", 0, kind))

    assert (stands.before.ended, stands.before.attempts, stands.interrupted) == ({}, {}, [])


def test_decisions_and_expiries_are_answers() -> None:
    read = progress.read_calls(
        [
            make_call("ask", 0, "approval", approval_id="appr_1"),
            events.ApprovalDecided(approval_id="appr_1", verdict=events.Verdict.DENY_STOP, by=ANN, comment="not today"),
            events.ApprovalExpired(approval_id="appr_2"),
        ]
    )

    assert read.answers == {
        "appr_1": engine.ApprovalAnswer(events.Verdict.DENY_STOP, "not today", None, ANN),
        "appr_2": engine.ApprovalAnswer(None),
    }
    assert read.open == ["step:ask:0"]


HIDDEN = [
    make_finished("one", outputs={"token": MARK}),
    make_finished("one", outputs=None),
    make_failed("one", error={"message": f"x {MARK}"}),
]


@pytest.mark.parametrize("told", HIDDEN, ids=["secret", "too large", "error"])
def test_what_was_hidden_is_missed_only_by_who_needs_it(told: events.ToolFinished) -> None:
    on = "failure" if told.is_error else "success"
    needs = make_node("two", "work", text="$step.one.token")
    needs_not = make_node("two", "work", text="$step.zero.said")
    edges = [make_edge("zero", "one"), make_edge("one", "two", on=on)]
    first = [make_node("zero", "work"), make_node("one", "work")]
    before = [make_call("zero"), make_finished("zero"), make_call("one"), told]

    with pytest.raises(progress.FlowStateLost, match="`two` needs what `one` gave"):
        compute_progress([*first, needs], *before, edges=edges)
    assert set(compute_progress([*first, needs_not], *before, edges=edges).before.ended) == {"zero", "one"}
    assert "two" in compute_progress([*first, needs], *before, make_call("two"), make_finished("two"), edges=edges).before.ended


def test_a_switch_misses_what_was_hidden_too() -> None:
    nodes = [
        make_node("one", "work"),
        make_node("way", "switch", key_from="$.vars.one.token", cases={"a": "two"}, default="two"),
        make_node("two", "work"),
    ]
    edges = [make_edge("one", "way"), make_edge("way", "two")]

    with pytest.raises(progress.FlowStateLost, match="`way` needs"):
        compute_progress(nodes, make_call("one"), make_finished("one", outputs={"token": MARK}), edges=edges)


def test_outputs_of_the_flow_that_were_not_kept_end_it() -> None:
    with pytest.raises(progress.FlowStateLost, match="too large to be kept"):
        compute_progress([make_node("tell", "dsl.emit")], make_call("tell", 0, "dsl.emit"), make_finished("tell", outputs=None))


def test_calls_of_steps_that_the_flow_does_not_have_are_nothing_to_it() -> None:
    odd = events.ToolCalled("step:x:0", "work", {"step": 3, "attempt": "0"})
    stands = compute_progress([make_node("one", "work")], odd, make_call("nobody"), make_finished("nobody"))

    assert (stands.before.ended, stands.before.attempts, stands.interrupted) == ({}, {}, [])
