"""What a runtime tells of a flow, as calls of its session. A runtime may tell anything."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.flow.recording import RecordingFlowContext
from tests.engines.flow.runtime.stage import make_document, make_edge, make_node

from switchtower.core import events
from switchtower.engines.flow import progress, recorder

NODES = [make_node("one", "log", message="hello"), make_node("two", "work")]
FLOW = events.Flow(name="staged", document=make_document(NODES, [make_edge("one", "two")]), inputs={"city": "Bern"})


def make_step(step_id: object = "one", state: object = "started", **more: Any) -> dict[str, Any]:
    return {"type": "step", "timestamp": "2026-01-01T00:00:00Z", "step_id": step_id, "state": state, **more}


def log(message: object = "hello", **more: Any) -> dict[str, Any]:
    return {"type": "log", "timestamp": "2026-01-01T00:00:00Z", "level": "info", "message": message, **more}


def record_events(
    *given: dict[str, Any], status: str | None = None, flow: events.Flow = FLOW, **summary: Any
) -> RecordingFlowContext:
    """What the desk has after these; with a status the flow ends."""

    async def tell() -> RecordingFlowContext:
        desk = RecordingFlowContext()
        writing = recorder.FlowRecorder(desk, flow, "run_1", progress.StepCalls())
        await writing.record_start()
        for event in given:
            await writing.record_event(event)
        if status is not None:
            await writing.record_end(status, summary)
        return desk

    return asyncio.run(tell())


def test_the_flow_is_a_call_around_its_steps() -> None:
    desk = record_events(
        make_step(attempt=0),
        log(step_id="one"),
        make_step(state="succeeded", attempt=0, duration_ms=12, outputs={"said": "hello"}),
        status="completed",
        completed_steps=1,
        outputs={"a": 1},
    )

    assert desk.called == ["run_1", "step:one:0"]
    flow, one = (event for event in desk.told if isinstance(event, events.ToolCalled))
    assert (flow.tool, one.tool) == ("flow", "log")
    assert one.args == {"step": "one", "attempt": 0, "with": {"message": "hello"}}
    assert flow.args == {
        "flow": "staged",
        "runtime": "python",
        "inputs": {"city": "Bern"},
        "graph": {
            "nodes": [{"id": "one", "type": "log"}, {"id": "two", "type": "work"}],
            "edges": [{"from": "one", "to": "two", "on": "success"}],
        },
    }
    assert desk.get_logs("step:one:0") == "[info] hello\n"
    end = desk.ends["step:one:0"]
    assert (end.duration_ms, end.outputs, end.is_error, end.text) == (
        12,
        {"said": "hello"},
        False,
        'one: succeeded\n{"said":"hello"}\n[info] hello',
    )
    assert desk.ends["run_1"].outputs == {
        "status": "completed",
        "summary": {"completed_steps": 1, "outputs": {"a": 1}},
        "events": [
            [make_step(attempt=0)],
            [log(step_id="one")],
            [make_step(state="succeeded", attempt=0, duration_ms=12), "step:one:0"],
        ],
        "events_left_out": 0,
    }
    assert list(desk.ends) == ["step:one:0", "run_1"]


def test_a_failed_step_has_its_error() -> None:
    error = {"code": 2001, "message": "no", "data": {"step_id": "one"}}
    end = record_events(make_step(attempt=0), make_step(state="failed", attempt=0, error=error)).ends["step:one:0"]

    assert (end.is_error, end.outputs, end.text) == (True, {"error": error}, "one: failed: no")
    assert end.error == events.ToolError(type="UNKNOWN", message="one: failed: no")


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"type": "novel"},
        make_step("nobody"),
        make_step("nobody", "succeeded"),
        make_step(None),
        make_step(["one"]),
        make_step({"a": 1}),
        make_step(state="paused"),
        make_step(state=None),
        make_step(state=["started"]),
        log(None),
        log({"a": 1}),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_passed_over(nonsense: dict[str, Any]) -> None:
    assert record_events(nonsense).called == ["run_1"]
    assert len(record_events(nonsense).told) == 1


def test_an_end_without_a_beginning_gets_one() -> None:
    desk = record_events(make_step(state="succeeded", attempt=0))

    assert [type(event) for event in desk.told] == [events.ToolCalled, events.ToolCalled, events.ToolFinished]


def test_what_is_told_twice_happened_once() -> None:
    again = [
        make_step(attempt=0),
        make_step(attempt=0),
        make_step(state="succeeded", attempt=0),
        make_step(state="failed", attempt=0),
        make_step(attempt=0),
    ]
    desk = record_events(*again)

    assert len(desk.told) == 3
    assert desk.ends["step:one:0"].is_error is False


def test_tries_are_counted_for_a_runtime_that_does_not() -> None:
    tries = [
        make_step(),
        make_step(state="failed"),
        make_step(attempt=None),
        make_step(state="failed", attempt="x"),
        make_step(attempt=-1),
        make_step(state="succeeded"),
    ]
    desk = record_events(*tries)

    assert desk.called == ["run_1", "step:one:0", "step:one:1", "step:one:2"]
    assert [end.is_error for end in desk.ends.values()] == [True, True, False]


def test_an_end_without_a_number_is_that_of_the_last_try() -> None:
    desk = record_events(
        make_step(attempt=0), make_step(state="failed", attempt=0), make_step(attempt=4), make_step(state="succeeded")
    )

    assert list(desk.ends) == ["step:one:0", "step:one:4"]


@pytest.mark.parametrize(
    ("took", "kept"),
    [(12, 12), (12.7, 12), (True, 0), (-1, 0), ("12", 0), (None, 0), (2**60, 0), (1e300, 0), ([12], 0)],
    ids=str,
)
def test_a_duration_is_a_number_of_milliseconds_or_unknown(took: object, kept: int) -> None:
    assert record_events(make_step(state="succeeded", attempt=0, duration_ms=took)).ends["step:one:0"].duration_ms == kept


@pytest.mark.parametrize("outputs", [None, 3, "text", ["a"]])
def test_outputs_that_are_no_names_and_values_are_none(outputs: object) -> None:
    assert record_events(make_step(state="succeeded", attempt=0, outputs=outputs)).ends["step:one:0"].outputs == {}


@pytest.mark.parametrize("error", [None, "no", 3, [], {"message": {"a": 1}}, {}])
def test_a_failure_without_an_error_is_one_all_the_same(error: object) -> None:
    end = record_events(make_step(state="failed", attempt=0, error=error)).ends["step:one:0"]

    assert end.is_error is True
    assert end.text.startswith("one: failed: ")


def test_outputs_that_are_too_large_are_not_kept_and_that_is_said() -> None:
    end = record_events(make_step(state="succeeded", attempt=0, outputs={"a": "x" * (recorder.MOST_OUTPUTS + 1)})).ends[
        "step:one:0"
    ]

    assert end.outputs is None
    assert end.is_error is False
    assert end.text.endswith("too large to be kept")
    assert len(end.text) < 10_000


def test_an_error_that_is_too_large_still_tells_the_beginning_of_it() -> None:
    error = {"code": 2001, "message": "y" * (recorder.MOST_OUTPUTS + 1)}
    end = record_events(make_step(state="failed", attempt=0, error=error)).ends["step:one:0"]

    assert (end.is_error, end.outputs) == (True, None)
    assert end.text.startswith("one: failed: yyy")
    assert len(end.text) < 20_000


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_how_a_flow_ended_is_kept_however_much_it_put_out(status: str) -> None:
    more = {"error": {"code": 2001, "message": "no"}} if status == "failed" else {}
    huge = {"a": "x" * recorder.MOST_SUMMARY}
    desk = record_events(status=status, completed_steps=3, failed_steps=1, outputs=huge, **more)

    outputs = desk.ends["run_1"].outputs
    assert outputs is not None
    assert (outputs["status"], outputs["summary"]["completed_steps"]) == (status, 3)
    assert "outputs" not in outputs["summary"]
    assert outputs["summary"].get("error", {}).get("message") == (None if status == "completed" else "no")
    assert desk.ends["run_1"].text.splitlines()[-1] == "what it put out is too large to be kept"


def test_a_summary_of_nonsense_is_no_larger_than_others() -> None:
    outputs = record_events(status="completed", completed_steps="x" * recorder.MOST_SUMMARY, failed_steps=0).ends["run_1"].outputs

    summary = {"failed_steps": 0, "outputs_left_out": True}
    assert outputs == {"status": "completed", "summary": summary, "events": [], "events_left_out": 0}


def test_of_a_flood_of_events_the_first_are_kept_and_the_others_counted() -> None:
    flood = [{"type": "novel", "timestamp": "2026-01-01T00:00:00Z", "text": "x" * 100_000} for _ in range(60)]
    outputs = record_events(*flood, status="completed").ends["run_1"].outputs

    assert outputs is not None
    assert len(outputs["events"]) + outputs["events_left_out"] == 60
    assert 0 < len(str(outputs["events"])) <= recorder.MOST_EVENT_BYTES


def test_of_a_flow_that_was_interrupted_only_its_calls_are_known() -> None:
    async def tell() -> RecordingFlowContext:
        desk, before = (
            RecordingFlowContext(),
            progress.StepCalls(called={"run_1": events.ToolCalled(call_id="run_1", tool="flow", args={})}),
        )
        writing = recorder.FlowRecorder(desk, FLOW, "run_1", before)
        await writing.record_event(make_step())
        await writing.record_end("completed", {})
        return desk

    assert asyncio.run(tell()).ends["run_1"].outputs == {"status": "completed", "summary": {}}


def test_endless_logs_stream_by_and_only_their_beginning_is_kept_with_the_step() -> None:
    many = [log("z" * 1_000, step_id="one") for _ in range(2_000)]
    desk = record_events(make_step(attempt=0), *many, make_step(state="succeeded", attempt=0))

    assert len(desk.get_logs("step:one:0")) > 2_000_000
    assert len(desk.ends["step:one:0"].text) < 20_000


def test_one_endless_log_is_cut() -> None:
    assert len(record_events(log("z" * 10_000_000)).get_logs("run_1")) < 10_000


def test_a_log_of_several_lines_is_one_log() -> None:
    assert record_events(log("a\nb")).get_logs("run_1") == "[info] a\n  b\n"


@pytest.mark.parametrize("about", [None, "nobody", "two", 3, ["one"]])
def test_a_log_of_no_step_that_is_under_way_is_the_flow_s(about: object) -> None:
    assert record_events(make_step(attempt=0), log(step_id=about)).get_logs("run_1") == "[info] hello\n"


@pytest.mark.parametrize("level", [None, 3, "x" * 30, ["info"]])
def test_a_level_that_is_none_is_info(level: object) -> None:
    assert record_events(log(level=level)).get_logs("run_1") == "[info] hello\n"


def test_steps_that_a_runtime_left_open_end_with_the_flow() -> None:
    desk = record_events(make_step(attempt=0), make_step("two", attempt=0), status="completed")

    assert list(desk.ends) == ["step:one:0", "step:two:0", "run_1"]
    assert desk.ends["step:two:0"].is_error is True
    assert desk.ends["step:two:0"].text == "the runtime told no end of it"


def test_a_runtime_that_opens_tries_without_end_is_not_followed_for_ever() -> None:
    desk = record_events(*(make_step(attempt=number) for number in range(recorder.MOST_OPEN + 500)), status="failed")

    assert len(desk.called) <= recorder.MOST_OPEN + 2
    assert desk.ends.keys() == set(desk.called)


def test_a_large_graph_is_not_drawn() -> None:
    nodes = [make_node(f"n{number}", "log") for number in range(recorder.MOST_NODES_DRAWN + 1)]
    (flow_call,) = record_events(flow=events.Flow(name="large", document=make_document(nodes), inputs={})).told

    assert isinstance(flow_call, events.ToolCalled)
    assert "graph" not in flow_call.args


def test_long_inputs_and_parameters_are_shown_as_they_begin() -> None:
    long = "x" * 100_000
    flow = events.Flow(name="long", document=make_document([make_node("one", "log", message=long)]), inputs={"a": long})
    desk = record_events(make_step(attempt=0), flow=flow)

    for event in desk.told:
        assert isinstance(event, events.ToolCalled)
        shown = event.args.get("inputs") or event.args.get("with")
        assert isinstance(shown, dict)
        assert list(shown) == ["truncated"]
        assert len(shown["truncated"]) < 5_000


def test_what_stood_open_before_a_restart_is_ended_and_nothing_begins_twice() -> None:
    async def tell() -> RecordingFlowContext:
        first = RecordingFlowContext()
        writing = recorder.FlowRecorder(first, FLOW, "run_1", progress.StepCalls())
        await writing.record_start()
        await writing.record_event(make_step(attempt=0))
        desk = RecordingFlowContext()
        again = recorder.FlowRecorder(desk, FLOW, "run_1", progress.read_calls(first.steps))
        await again.record_start()
        await again.record_event(make_step(attempt=0))
        await again.record_interruption("one", 0, {"code": 2001, "message": "nobody knows"})
        await again.record_end("failed", {})
        return desk

    desk = asyncio.run(tell())

    assert desk.called == []
    assert [(call_id, end.text.splitlines()[0]) for call_id, end in desk.ends.items()] == [
        ("step:one:0", "nobody knows"),
        ("run_1", "staged: failed"),
    ]


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
_SAID = st.fixed_dictionaries(
    {"type": st.sampled_from(["step", "step", "log", "novel"]) | _ANY},
    optional={
        "step_id": st.sampled_from(["one", "two", "three"]) | _ANY,
        "state": st.sampled_from(["started", "succeeded", "failed"]) | _ANY,
        "attempt": st.integers(-1, 3) | _ANY,
        "duration_ms": _ANY,
        "outputs": _ANY,
        "error": _ANY,
        "level": _ANY,
        "message": _ANY,
    },
)


@given(said=st.lists(_SAID, max_size=25))
def test_whatever_a_runtime_says_calls_begin_once_and_end_once(said: list[dict[str, Any]]) -> None:
    desk = record_events(*said, status="completed")

    assert len(set(desk.called)) == len(desk.called)
    assert sum(isinstance(event, events.ToolFinished) for event in desk.told) == len(desk.called)
    under_way: set[str] = set()
    for event in desk.told:
        if isinstance(event, events.ToolCalled):
            under_way.add(event.call_id)
        elif isinstance(event, events.ToolFinished):
            under_way.remove(event.call_id)
        elif isinstance(event, events.ToolProgressed):
            assert event.call_id in under_way
