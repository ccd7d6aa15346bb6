"""A flow's session, told in REP's words from its journal."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.core import events, flows
from switchtower.core.codec import encode
from switchtower.core.flows import FlowSessionReport
from switchtower.core.ports import journal

AT = "2026-01-02T03:04:05.678Z"
MS = 1_767_323_045_678


def make_entries(*told: events.AnyEvent, first_seq: int = 1) -> list[journal.Entry]:
    return [journal.Entry(first_seq + place, MS, "run_1", event.kind, encode(event)) for place, event in enumerate(told)]


def report(*told: events.AnyEvent) -> FlowSessionReport:
    made = FlowSessionReport("weather")
    made.add_entries(make_entries(*told))
    return made


def make_step_started(step: str = "one", attempt: int = 0, kind: str = "log", **more: Any) -> events.ToolCalled:
    return events.ToolCalled(f"step:{step}:{attempt}", kind, {"step": step, "attempt": attempt, "with": {}, **more})


def make_step_ended(step: str = "one", attempt: int = 0, **more: Any) -> events.ToolFinished:
    fields: dict[str, Any] = {"duration_ms": 7, "text": f"{step}: succeeded", "outputs": {"said": "hello"}, **more}
    return events.ToolFinished(call_id=f"step:{step}:{attempt}", tool="log", **fields)


def make_step_log(text: str, call_id: str = "step:one:0") -> events.ToolProgressed:
    return events.ToolProgressed(call_id, text)


FLOW_BEGAN = events.ToolCalled("run_1", "flow", {"flow": "weather"})
SUMMARY = {"completed_steps": 1, "failed_steps": 0, "outputs": {"city": "Bern"}}
FLOW_ENDED = events.ToolFinished("run_1", "flow", 0, "done", outputs={"status": "completed", "summary": SUMMARY})
CUT_SHORT = events.RunCompleted(outcome=events.Outcome.CANCELLED, exit_code_hint=2, summary="The run was cancelled")
BROKE = events.RunCompleted(outcome=events.Outcome.FAILED, exit_code_hint=1, summary="the daemon ended")


def test_a_step_is_told_as_its_runtime_told_it() -> None:
    told = report(FLOW_BEGAN, make_step_started(), make_step_log("[info] hello\n"), make_step_ended(), FLOW_ENDED)

    assert told.events == [
        {"type": "step", "timestamp": AT, "step_id": "one", "state": "started", "attempt": 0},
        {"type": "log", "timestamp": AT, "level": "info", "message": "hello", "step_id": "one"},
        {
            "type": "step",
            "timestamp": AT,
            "step_id": "one",
            "state": "succeeded",
            "attempt": 0,
            "duration_ms": 7,
            "outputs": {"said": "hello"},
        },
    ]
    assert (told.flow, told.status, told.summary, told.left_out, told.last_seq) == ("weather", "completed", SUMMARY, 0, 5)


@pytest.mark.requirement("rep:tower:same-object")
def test_once_the_flow_has_ended_its_runtime_s_own_events_are_the_report() -> None:
    first = {"type": "step", "timestamp": "2025-01-01T00:00:00Z", "step_id": "one", "state": "started", "more": [1]}
    novel = {"type": "novel", "timestamp": "2025-01-01T00:00:01Z"}
    last = {**first, "state": "succeeded"}
    kept = [[first], [novel], [last, "step:one:0"], [last, "step:two:0"], 7, [], ["x"], [first, 3]]
    outputs = {"status": "completed", "summary": SUMMARY, "events": kept, "events_left_out": 4}
    told = report(
        FLOW_BEGAN, make_step_started(), make_step_ended(), events.ToolFinished("run_1", "flow", 0, "done", outputs=outputs)
    )

    assert told.events == [
        first,
        novel,
        {**last, "outputs": {"said": "hello"}},
        {**last, "outputs": {}, "outputs_left_out": True},
    ]
    assert told.left_out == 4


def test_a_failed_try_has_its_error_and_counts_until_a_later_one_succeeds() -> None:
    error = {"code": 2001, "message": "no", "data": {"step_id": "one"}}
    told = report(FLOW_BEGAN, make_step_started(), make_step_ended(is_error=True, outputs={"error": error}))

    assert told.events[-1]["error"] == error
    assert told.summary == {"completed_steps": 0, "failed_steps": 1}

    told.add_entries(make_entries(make_step_started(attempt=1), make_step_ended(attempt=1), first_seq=4))
    assert told.summary == {"completed_steps": 1, "failed_steps": 0}
    assert [(event["state"], event["attempt"]) for event in told.events] == [
        ("started", 0),
        ("failed", 0),
        ("started", 1),
        ("succeeded", 1),
    ]


def test_a_failure_whose_error_was_not_kept_has_the_text_that_was() -> None:
    told = report(make_step_started(), make_step_ended(is_error=True, outputs=None, text="one: failed"))

    assert told.events[-1]["error"] == {"code": 3001, "message": "one: failed", "data": {}}


def test_outputs_that_were_not_kept_are_said_to_be_missing() -> None:
    told = report(make_step_started(), make_step_ended(outputs=None))

    assert (told.events[-1]["outputs"], told.events[-1]["outputs_left_out"]) == ({}, True)


def test_who_does_a_step_of_the_tower_is_told_at_its_start() -> None:
    told = report(
        make_step_started("ask", kind="approval", approval_id="appr_1"),
        make_step_started("do", kind="agent.run", session_id="sess_2"),
    )

    assert [event.get("approval_id") for event in told.events] == ["appr_1", None]
    assert [event.get("session_id") for event in told.events] == [None, "sess_2"]


def test_a_flow_under_way_is_running() -> None:
    told = report(FLOW_BEGAN, make_step_started())

    assert (told.status, told.summary) == ("running", {"completed_steps": 0, "failed_steps": 0})


@pytest.mark.parametrize(("completed", "cause"), [(CUT_SHORT, "Cancelled"), (BROKE, None)])
def test_a_run_that_was_cut_short_has_failed_with_who_cut_it(completed: events.RunCompleted, cause: str | None) -> None:
    told = report(FLOW_BEGAN, make_step_started(), make_step_ended(), make_step_started("two"), completed)

    assert (told.status, told.summary["completed_steps"]) == ("failed", 1)
    error = told.summary["error"]
    assert (error["code"], error["message"], error["data"].get("cause")) == (3001, completed.summary, cause)


def test_the_end_of_the_run_changes_nothing_of_an_end_that_was_told() -> None:
    told = report(FLOW_BEGAN, FLOW_ENDED, CUT_SHORT)

    assert (told.status, told.summary) == ("completed", SUMMARY)


@pytest.mark.parametrize("outputs", [{}, {"status": ["completed"]}, {"status": "running", "summary": 3}])
def test_an_end_that_makes_no_sense_is_a_failure(outputs: dict[str, Any]) -> None:
    told = report(
        FLOW_BEGAN, make_step_started(), make_step_ended(), events.ToolFinished("run_1", "flow", 0, "?", outputs=outputs)
    )

    assert (told.status, told.summary) == ("failed", {"completed_steps": 1, "failed_steps": 0})


@given(cuts=st.lists(st.integers(0, 60), max_size=6))
def test_logs_are_lines_however_they_were_cut_into_pieces(cuts: list[int]) -> None:
    text = "[info] first\n[warning] second\n  and more of it\n\n[error] a ] b\n"
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [make_step_log(text[start:end]) for start, end in itertools.pairwise(places)]

    told = report(make_step_started(), *pieces)

    assert [(event["level"], event["message"]) for event in told.events[1:]] == [
        ("info", "first"),
        ("warning", "second\nand more of it"),
        ("info", ""),
        ("error", "a ] b"),
    ]


def test_the_last_line_of_a_step_needs_no_end() -> None:
    told = report(make_step_started(), make_step_log("[info] half"), make_step_ended())

    assert [event["type"] for event in told.events] == ["step", "log", "step"]
    assert told.events[1]["message"] == "half"


def test_a_log_of_the_flow_itself_names_no_step() -> None:
    told = report(FLOW_BEGAN, make_step_log("[info] hello\n", "run_1"))

    assert told.events == [{"type": "log", "timestamp": AT, "level": "info", "message": "hello"}]


def test_of_too_many_events_the_first_are_kept_and_the_others_counted() -> None:
    told = report(make_step_started(), make_step_log("[info] x\n" * (flows.MOST_EVENTS + 7)), make_step_ended(), FLOW_ENDED)

    assert (len(told.events), told.left_out, told.status) == (flows.MOST_EVENTS, 9, "completed")


def test_of_events_that_are_too_long_the_first_are_kept_and_the_others_counted() -> None:
    long = "x" * (1024 * 1024)
    told = report(make_step_started(), *(make_step_log(f"[info] {long}\n  {long}\n") for _ in range(40)), FLOW_ENDED)

    assert sum(len(event.get("message", "")) for event in told.events) <= flows.MOST_BYTES
    assert len(told.events) + told.left_out >= 20
    assert told.status == "completed"


def test_what_has_nothing_to_do_with_steps_is_passed_over() -> None:
    told = report(
        events.TextDelta("hello"),
        events.ToolCalled("call_1", "shell", {"command": "ls"}),
        events.ToolFinished("call_1", "shell", 1, "files"),
        events.ToolCalled("call_2", "odd", {"step": 3}),
    )

    assert (told.events, told.status, told.last_seq) == ([], "running", 4)


_TEXT = st.text(max_size=12) | st.sampled_from(["run_1", "step:one:0", "step:two:1", "[info] a\n", "  b\n", "\n", "[", "] "])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | _TEXT, lambda inner: st.lists(inner, max_size=3), max_leaves=4
)
_ARGS = st.dictionaries(st.sampled_from(["step", "attempt", "with", "session_id", "approval_id"]), _JSON, max_size=5)
_OUTPUTS = st.none() | st.dictionaries(st.sampled_from(["status", "summary", "error", "outputs"]), _JSON, max_size=4)
_ANY = st.one_of(
    st.builds(events.ToolCalled, call_id=_TEXT, tool=_TEXT, args=_ARGS),
    st.builds(events.ToolProgressed, call_id=_TEXT, text=_TEXT),
    st.builds(
        events.ToolFinished,
        call_id=_TEXT,
        tool=st.sampled_from(["flow", "log"]),
        duration_ms=st.integers(0, 9),
        text=_TEXT,
        is_error=st.booleans(),
        outputs=_OUTPUTS,
    ),
    st.sampled_from(
        [
            FLOW_BEGAN,
            FLOW_ENDED,
            CUT_SHORT,
            BROKE,
            make_step_started(),
            make_step_ended(),
            make_step_started("two", 1),
            make_step_ended("two", 1, is_error=True),
        ]
    ),
)


@given(told=st.lists(_ANY, max_size=30), page=st.integers(1, 30))
def test_whatever_stands_in_a_journal_there_is_a_report_and_pages_make_no_difference(
    told: list[events.AnyEvent], page: int
) -> None:
    whole = report(*told)
    paged = FlowSessionReport("weather")
    rows = make_entries(*told)
    for start in range(0, len(rows), page):
        paged.add_entries(rows[start : start + page])

    assert (whole.events, whole.status, whole.summary, whole.last_seq) == (paged.events, paged.status, paged.summary, len(told))
    assert whole.status in ("running", "completed", "failed")
    assert all(event["type"] in ("step", "log") for event in whole.events)
