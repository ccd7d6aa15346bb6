"""How far a flow had come before a restart."""

from typing import Any

import pytest
from tests.engines.flow.runtime.stage import document, edge, node

from switchtower.core import engine, events
from switchtower.core.redact import MARK
from switchtower.engines.flow import calls, ir
from switchtower.engines.flow.runtime import faults

ANN = events.Actor(name="ann", via="app")
ERROR = {"code": 2001, "message": "no", "data": {"retriable": True, "details": {"why": "told"}, "cause": "Timeout"}}


def called(step: str, attempt: int = 0, kind: str = "work", **more: Any) -> events.ToolCalled:
    return events.ToolCalled(calls.id_of(step, attempt), kind, {"step": step, "attempt": attempt, "with": {}, **more})


def finished(step: str, attempt: int = 0, **more: Any) -> events.ToolFinished:
    fields: dict[str, Any] = {"outputs": {"said": "hello"}, "text": f"{step}: succeeded", **more}
    return events.ToolFinished(call_id=calls.id_of(step, attempt), tool="work", duration_ms=1, **fields)


def failed(step: str, attempt: int = 0, error: object = ERROR) -> events.ToolFinished:
    return finished(step, attempt, is_error=True, text="it failed", outputs={"error": error})


def standing(nodes: list[dict[str, Any]], *told: engine.FlowEvent, edges: list[dict[str, str]] | None = None) -> calls.Standing:
    flow_began = events.ToolCalled("run_1", "flow", {"flow": "staged"})
    return calls.standing(ir.parse(document(nodes, edges)), calls.read([flow_began, *told]))


def test_of_a_flow_that_told_nothing_everything_is_to_be_done() -> None:
    stands = standing([node("one", "work")])

    assert (stands.before.ended, stands.before.attempts, stands.interrupted) == ({}, {}, [])


def test_a_step_that_ended_is_not_done_again() -> None:
    stands = standing([node("one", "work")], called("one"), finished("one"))

    assert stands.before.ended == {"one": {"said": "hello"}}
    assert (stands.before.attempts, stands.interrupted) == ({}, [])


def test_the_last_try_counts() -> None:
    stands = standing([node("one", "work", retries=1)], called("one"), failed("one"), called("one", 1), finished("one", 1))

    assert stands.before.ended == {"one": {"said": "hello"}}


def test_a_failure_that_may_pass_is_tried_again_while_tries_are_left() -> None:
    stands = standing([node("one", "work", retries=1)], called("one"), failed("one"))

    assert (stands.before.ended, stands.before.attempts, stands.interrupted) == ({}, {"one": 1}, [])


@pytest.mark.parametrize("retries", [0, 1])
def test_the_last_failure_stays_as_it_was_told(retries: int) -> None:
    told = [event for attempt in range(retries + 1) for event in (called("one", attempt), failed("one", attempt))]
    stands = standing([node("one", "work", retries=retries)], *told)

    failure = stands.before.ended["one"]
    assert isinstance(failure, faults.Failure)
    assert (failure.code, failure.message, failure.details, failure.cause) == (2001, "no", {"why": "told"}, "Timeout")
    assert (failure.step_id, failure.attempt, failure.retriable) == ("one", retries, True)


def test_a_failure_that_would_come_again_is_not_tried_again() -> None:
    error = {**ERROR, "data": {"retriable": False}}
    stands = standing([node("one", "work", retries=3)], called("one"), failed("one", error=error))

    assert isinstance(stands.before.ended["one"], faults.Failure)


@pytest.mark.parametrize("error", [None, "no", {"code": "x", "message": 3, "data": []}, {"data": {"details": 3, "cause": 4}}])
def test_an_error_that_is_none_of_ours_is_a_failure_all_the_same(error: object) -> None:
    failure = standing([node("one", "work")], called("one"), failed("one", error=error)).before.ended["one"]

    assert isinstance(failure, faults.Failure)
    assert (failure.code, failure.message, failure.details, failure.cause) == (2001, "it failed", {}, None)


def test_a_step_under_way_counts_as_a_failed_try() -> None:
    stands = standing([node("one", "work")], called("one"))

    ((step, attempt, failure),) = stands.interrupted
    assert (step, attempt, failure.code, failure.cause, failure.retriable) == ("one", 0, 2001, "Interrupted", True)
    assert stands.before.ended == {"one": failure}


def test_a_step_under_way_is_tried_again_while_tries_are_left() -> None:
    stands = standing([node("one", "work", retries=2)], called("one"), failed("one"), called("one", 1))

    assert [(step, attempt) for step, attempt, _ in stands.interrupted] == [("one", 1)]
    assert (stands.before.ended, stands.before.attempts) == ({}, {"one": 2})


@pytest.mark.parametrize("kind", ["approval", "agent.run"])
def test_people_and_agents_are_waited_for_again(kind: str) -> None:
    told = [called("one", 0, kind), failed("one"), called("one", 1, kind, approval_id="appr_1")]
    stands = standing([node("one", kind, retries=1, prompt="x")], *told)

    assert (stands.before.ended, stands.before.attempts, stands.interrupted) == ({}, {"one": 1}, [])


@pytest.mark.parametrize("kind", ["dsl.emit", "finish"])
def test_what_does_nothing_outside_of_the_flow_is_done_again(kind: str) -> None:
    stands = standing([node("one", kind)], called("one", 0, kind))

    assert (stands.before.ended, stands.before.attempts, stands.interrupted) == ({}, {}, [])


def test_decisions_and_expiries_are_answers() -> None:
    read = calls.read(
        [
            called("ask", 0, "approval", approval_id="appr_1"),
            events.ApprovalDecided(approval_id="appr_1", verdict=events.Verdict.DENY_STOP, by=ANN, comment="not today"),
            events.ApprovalExpired(approval_id="appr_2"),
        ]
    )

    assert read.answers == {
        "appr_1": engine.Answer(events.Verdict.DENY_STOP, "not today", None, ANN),
        "appr_2": engine.Answer(None),
    }
    assert read.open == ["step:ask:0"]


HIDDEN = [finished("one", outputs={"token": MARK}), finished("one", outputs=None), failed("one", error={"message": f"x {MARK}"})]


@pytest.mark.parametrize("told", HIDDEN, ids=["secret", "too large", "error"])
def test_what_was_hidden_is_missed_only_by_who_needs_it(told: events.ToolFinished) -> None:
    on = "failure" if told.is_error else "success"
    needs = node("two", "work", text="$step.one.token")
    needs_not = node("two", "work", text="$step.zero.said")
    edges = [edge("zero", "one"), edge("one", "two", on=on)]
    first = [node("zero", "work"), node("one", "work")]
    before = [called("zero"), finished("zero"), called("one"), told]

    with pytest.raises(calls.Gone, match="`two` needs what `one` gave"):
        standing([*first, needs], *before, edges=edges)
    assert set(standing([*first, needs_not], *before, edges=edges).before.ended) == {"zero", "one"}
    assert "two" in standing([*first, needs], *before, called("two"), finished("two"), edges=edges).before.ended


def test_a_switch_misses_what_was_hidden_too() -> None:
    nodes = [
        node("one", "work"),
        node("way", "switch", key_from="$.vars.one.token", cases={"a": "two"}, default="two"),
        node("two", "work"),
    ]
    edges = [edge("one", "way"), edge("way", "two")]

    with pytest.raises(calls.Gone, match="`way` needs"):
        standing(nodes, called("one"), finished("one", outputs={"token": MARK}), edges=edges)


def test_outputs_of_the_flow_that_were_not_kept_end_it() -> None:
    with pytest.raises(calls.Gone, match="too large to be kept"):
        standing([node("tell", "dsl.emit")], called("tell", 0, "dsl.emit"), finished("tell", outputs=None))


def test_calls_of_steps_that_the_flow_does_not_have_are_nothing_to_it() -> None:
    odd = events.ToolCalled("step:x:0", "work", {"step": 3, "attempt": "0"})
    stands = standing([node("one", "work")], odd, called("nobody"), finished("nobody"))

    assert (stands.before.ended, stands.before.attempts, stands.interrupted) == ({}, {}, [])
