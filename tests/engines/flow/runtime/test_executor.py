"""A run from its start to its end: what is executed, what is told, and that nothing stays behind."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.engines.flow.runtime.stage import (
    BlockingStepKind,
    FlowRuntimeHarness,
    list_states,
    make_document,
    make_edge,
    make_node,
    play,
)

from switchtower.engines.flow.runtime import failures
from switchtower.engines.flow.runtime.kinds import port


@pytest.mark.requirement("rep:settled:outputs")
async def test_steps_run_one_after_the_other_along_success_edges_and_emit_outputs() -> None:
    told = await play(
        make_document(
            [
                make_node("a", "work", x="$input.n"),
                make_node("b", "dsl.emit", answer="$step.a.x", fixed="72"),
                make_node("end", "finish"),
            ],
            [make_edge("a", "b"), make_edge("b", "end")],
            n="number",
        ),
        {"n": 42},
    )

    assert told["status"] == "completed"
    assert told["summary"] == {"completed_steps": 3, "failed_steps": 0, "outputs": {"answer": 42, "fixed": "72"}}
    assert list_states(told) == [(step, state, 0) for step in ("a", "b", "end") for state in ("started", "succeeded")]
    assert [event.get("outputs") for event in told["events"][1::2]] == [{"x": 42}, {"answer": 42, "fixed": "72"}, {}]


@pytest.mark.requirement("rep:settled:error")
async def test_a_failed_step_without_a_failure_edge_fails_the_run_and_tells_all_of_the_error() -> None:
    told = await play(make_document([make_node("a", "work", fails=9, retries=1), make_node("b", "work")], [make_edge("a", "b")]))

    assert told["status"] == "failed"
    assert list_states(told) == [("a", "started", 0), ("a", "failed", 0), ("a", "started", 1), ("a", "failed", 1)]
    assert told["summary"] == {
        "completed_steps": 0,
        "failed_steps": 1,
        "outputs": {},
        "error": {
            "code": 2001,
            "message": "it was told to fail",
            "data": {"step_id": "a", "attempt": 1, "retriable": True, "details": {"why": "told"}},
        },
    }


@pytest.mark.requirement("rep:ir:edges")
async def test_a_failure_edge_is_taken_after_the_last_failed_try_and_the_success_edge_is_not() -> None:
    stage = FlowRuntimeHarness(
        make_document(
            [
                make_node("a", "work", fails=9, retries=2),
                make_node("good", "work"),
                make_node("bad", "work", saw="$step.a.error.code"),
            ],
            [make_edge("a", "good"), make_edge("a", "bad", on="failure")],
        )
    )
    told = await stage.play()

    assert told["status"] == "completed"
    assert stage.work.ran == ["a", "a", "a", "bad"]
    assert told["summary"]["failed_steps"] == 1
    assert told["events"][-1]["outputs"] == {"saw": 2001}


@pytest.mark.requirement("rep:ir:retry")
async def test_a_retried_step_that_succeeds_at_last_counts_as_completed() -> None:
    told = await play(make_document([make_node("a", "work", fails=2, retries=5, backoff_ms=1)]))

    assert told["summary"]["completed_steps"] == 1
    assert list_states(told)[-1] == ("a", "succeeded", 2)


@pytest.mark.requirement("rep:errors:retriable")
async def test_a_failure_that_is_not_retriable_is_not_tried_again() -> None:
    stage = FlowRuntimeHarness(make_document([make_node("a", "work", fails=1, retriable=False, retries=5)]))
    told = await stage.play()

    assert stage.work.ran == ["a"]
    assert told["summary"]["error"]["data"]["retriable"] is False


@pytest.mark.requirement("rep:control:switch")
@pytest.mark.parametrize(
    ("value", "ran"),
    [("red", "r"), ("blue", "b"), ("green", "other"), (7, "seven"), (True, "yes"), (None, "other")],
)
async def test_a_switch_takes_the_way_of_its_key_and_skips_all_others(value: Any, ran: str) -> None:
    cases = {"red": "r", "blue": "b", "7": "seven", "true": "yes"}
    targets = ["r", "b", "seven", "yes", "other"]
    stage = FlowRuntimeHarness(
        make_document(
            [
                make_node("first", "work", colour="$input"),
                make_node("pick", "switch", key_from="$.vars.first.colour.x", cases=cases, default="other"),
                *(make_node(target, "work") for target in targets),
                make_node("after", "work"),
            ],
            [
                make_edge("first", "pick"),
                *(make_edge("pick", target) for target in targets),
                *(make_edge(t, "after") for t in targets),
            ],
        ),
        {} if value is None else {"x": value},
    )
    told = await stage.play()

    assert told["status"] == "completed"
    assert stage.work.ran == ["first", ran, "after"]


async def test_a_switch_without_a_case_for_its_key_is_a_failed_step() -> None:
    told = await play(
        make_document(
            [make_node("pick", "switch", key_from="$.inputs.x", cases={"a": "w"}), make_node("w", "work")],
            [make_edge("pick", "w")],
            x="string",
        ),
        {"x": "b"},
    )

    assert told["summary"]["error"]["code"] == 2001
    assert "`b`" in told["summary"]["error"]["message"]


async def test_outputs_of_a_way_that_was_not_taken_are_null_and_a_step_that_needs_them_fails() -> None:
    nodes = [
        make_node("first", "work", x="1"),
        make_node("rescue", "work"),
        make_node("tell", "dsl.emit", x="$step.first.x", r="$step.rescue.r"),
    ]
    edges = [make_edge("first", "rescue", on="failure"), make_edge("first", "tell"), make_edge("rescue", "tell")]

    told = await play(make_document(nodes, edges))
    assert (told["status"], told["summary"]["outputs"]) == ("completed", {"x": "1", "r": None})

    nodes[-1]["type"] = "work"
    told = await play(make_document(nodes, edges))
    assert told["summary"]["error"]["message"] == "`$step.rescue.r` refers to nothing"


async def test_a_join_waits_for_all_that_leads_to_it_and_runs_once() -> None:
    stage = FlowRuntimeHarness(
        make_document(
            [make_node("a", "work", turns=9), make_node("b", "work"), make_node("join", "work")],
            [make_edge("a", "join"), make_edge("b", "join")],
        )
    )
    await stage.play()

    assert stage.work.ran == ["a", "b", "join"]


@pytest.mark.requirement("rep:control:finish")
async def test_finish_ends_the_run_and_cancels_what_still_runs() -> None:
    gate = BlockingStepKind()
    stage = FlowRuntimeHarness(
        make_document(
            [make_node("slow", "gate"), make_node("a", "work", turns=3), make_node("end", "finish")], [make_edge("a", "end")]
        ),
        gate=gate,
    )
    told = await stage.play()

    assert told["status"] == "completed"
    assert gate.cancelled == ["slow"]


async def test_a_failure_cancels_the_steps_that_run_beside_it() -> None:
    gate = BlockingStepKind()
    stage = FlowRuntimeHarness(make_document([make_node("slow", "gate"), make_node("bad", "work", fails=1)]), gate=gate)
    told = await stage.play()

    assert told["summary"]["error"]["data"]["step_id"] == "bad"
    assert (gate.cancelled, gate.active) == (["slow"], 0)


@pytest.mark.requirement("rep:capabilities:concurrency")
async def test_no_more_than_the_concurrency_runs_at_once() -> None:
    stage = FlowRuntimeHarness(make_document([make_node(f"n{number}", "work", turns=3) for number in range(20)]), concurrency=3)
    await stage.play()

    assert stage.work.most_active == 3
    assert len(stage.work.ran) == 20


@pytest.mark.requirement("rep:timeouts:step")
async def test_a_try_that_takes_too_long_is_a_failed_try_with_its_cause() -> None:
    gate = BlockingStepKind()
    told = await play(make_document([make_node("slow", "gate", timeout_ms=5, retries=1)]), gate=gate)

    assert gate.cancelled == ["slow", "slow"]
    assert told["summary"]["error"]["code"] == 2001
    assert told["summary"]["error"]["data"]["cause"] == "Timeout"
    assert told["summary"]["error"]["data"]["attempt"] == 1


@pytest.mark.requirement("rep:timeouts:flow", "rep:settled:timeout")
async def test_a_flow_that_takes_too_long_is_3001_with_its_cause_and_leaves_nothing_running() -> None:
    gate = BlockingStepKind()
    told = await play(make_document([make_node("slow", "gate")], timeout_ms=5), gate=gate)

    assert (told["summary"]["error"]["code"], told["summary"]["error"]["data"]["cause"]) == (3001, "Timeout")
    assert gate.active == 0


async def test_a_cancelled_run_has_failed_with_its_cause_and_leaves_nothing_running() -> None:
    gate = BlockingStepKind()
    stage = FlowRuntimeHarness(
        make_document([make_node("slow", "gate"), make_node("next", "work")], [make_edge("slow", "next")]), gate=gate
    )
    playing = asyncio.create_task(stage.play())
    await gate.entered.wait()
    assert stage.poll()["status"] == "running"
    stage.execution.cancel()
    stage.execution.cancel()
    told = await playing

    assert told["status"] == "failed"
    assert told["summary"]["error"]["data"]["cause"] == "Cancelled"
    assert (gate.cancelled, gate.active, stage.work.ran) == (["slow"], 0, [])


async def test_a_run_that_is_cancelled_before_it_begins_executes_nothing() -> None:
    stage = FlowRuntimeHarness(make_document([make_node("a", "work")]))
    assert stage.poll() == {"status": "pending", "events": [], "summary": {"completed_steps": 0, "failed_steps": 0}}
    stage.execution.cancel()
    told = await stage.play()

    assert told["summary"]["error"]["data"]["cause"] == "Cancelled"
    assert stage.work.ran == []


async def test_whoever_waits_for_the_run_can_be_cancelled_and_the_run_goes_too() -> None:
    gate = BlockingStepKind()
    stage = FlowRuntimeHarness(make_document([make_node("slow", "gate")]), gate=gate)
    executing = asyncio.create_task(stage.execution.execute())
    await gate.entered.wait()
    executing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await executing

    assert gate.active == 0
    assert stage.poll()["summary"]["error"]["data"]["cause"] == "Cancelled"


async def test_what_kinds_hold_is_closed_at_the_end_even_when_closing_breaks() -> None:
    closed: list[str] = []

    class Holder:
        async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
            async def close() -> None:
                closed.append("held")

            async def break_down() -> None:
                raise OSError("no")

            context.setting.closings["bad"] = break_down
            context.setting.closings["good"] = close
            raise failures.StepFailed("over")

    told = await play(make_document([make_node("a", "holder")]), holder=Holder())

    assert closed == ["held"]
    assert told["summary"]["error"]["message"] == "over"
    assert [event["level"] for event in told["events"] if event["type"] == "log"] == ["warning"]


@pytest.mark.requirement("rep:errors:panic")
async def test_a_kind_that_breaks_is_3002_and_its_words_stay_off_the_wire(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken:
        async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
            raise KeyError("password=hunter2")

    told = await play(make_document([make_node("a", "broken", retries=3)]), broken=Broken())

    assert told["summary"]["error"]["code"] == 3002
    assert "hunter2" not in str(told)
    assert "hunter2" in capsys.readouterr().err


async def test_a_kind_that_gives_itself_up_fails_its_step_and_the_run_ends() -> None:
    class GivesUp:
        async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
            raise asyncio.CancelledError

    told = await play(make_document([make_node("a", "gives_up")]), gives_up=GivesUp())

    assert told["summary"]["error"]["code"] == 3002


@pytest.mark.parametrize(
    "outputs", [None, [1], {"a": object()}, {"a": "x" * (4 * 1024 * 1024 + 1)}], ids=["none", "list", "no json", "too large"]
)
async def test_outputs_that_cannot_be_told_fail_the_step(outputs: Any) -> None:
    class Odd:
        async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
            result: Mapping[str, Any] = outputs
            return result

    told = await play(make_document([make_node("a", "odd")]), odd=Odd())

    assert told["summary"]["error"]["code"] == 2001
    assert told["summary"]["error"]["message"].startswith("its outputs")


async def test_half_a_character_in_an_input_is_told_as_json_can_spell_it() -> None:
    told = await play(make_document([make_node("a", "dsl.emit", x="$input.x")], x="string"), {"x": "\ud800"})

    assert told["summary"]["outputs"] == {"x": "\ud800"}


async def test_the_end_is_not_told_before_the_last_event() -> None:
    names = [f"n{number}" for number in range(4)]
    stage = FlowRuntimeHarness(make_document([make_node(name, "work", blob="x" * 2_000_000) for name in names]))
    told = [await stage.play()]
    while told[-1]["status"] == "running":
        told.append(stage.poll())

    assert len(told) > 1
    assert [event["step_id"] for part in told for event in part["events"] if event["state"] == "succeeded"] == names
    assert all("outputs" not in part["summary"] for part in told[:-1])
    assert told[-1]["status"] == "completed"


async def test_a_kind_that_calls_itself_instant_and_waits_fails_its_step() -> None:
    class Liar:
        instant = True

        async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
            await asyncio.sleep(0)
            return {}

    told = await play(make_document([make_node("a", "liar")]), liar=Liar())

    assert told["summary"]["error"]["code"] == 3002


def test_a_flow_of_instant_steps_is_over_without_an_event_loop() -> None:
    stage = FlowRuntimeHarness(
        make_document(
            [
                make_node("l", "log", message="hi"),
                make_node("bad", "assert", value="no"),
                make_node("e", "dsl.emit", x="1"),
                make_node("end", "finish"),
            ],
            [make_edge("l", "bad"), make_edge("bad", "e", on="failure"), make_edge("e", "end")],
        )
    )
    stage.run.begin()

    told = stage.poll()
    assert told["status"] == "completed"
    assert told["summary"] == {"completed_steps": 3, "failed_steps": 1, "outputs": {"x": "1"}}
    assert [state for _, state, _ in list_states(told)] == [
        "started", "succeeded", "started", "failed", "started", "succeeded", "started", "succeeded",
    ]  # fmt: skip


async def test_outputs_that_together_are_too_large_fail_the_run() -> None:
    blob = "x" * 3_500_000
    names = ["a", "b", "c"]
    told = await play(make_document([make_node(name, "dsl.emit", **{name: blob}) for name in names]))
    assert told["status"] == "running", "there is more to be told than one poll takes"

    stage = FlowRuntimeHarness(make_document([make_node(name, "dsl.emit", **{name: blob}) for name in names]))
    last = await stage.play()
    while last["status"] == "running":
        last = stage.poll()
    assert last["summary"]["error"]["code"] == 2001
    assert last["summary"]["error"]["data"]["step_id"] == "c"
    assert set(last["summary"]["outputs"]) == {"a", "b"}
