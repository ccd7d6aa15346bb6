"""A run as MiniCodex clients see it: which frames, in which order, and with what in them."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.minicodex import closed
from tests.protocols.minicodex.tales import (
    APPROVAL,
    ASKED,
    CALL,
    CALLED,
    FINISHED,
    OWNER,
    RUN,
    RUN_UUID,
    SESSION,
    STARTED,
    THINKING,
    encode_entries,
    make_entries,
    make_run_completed,
    summarise_frames,
)
from tests.protocols.pi.strategies import ANY_EVENT, ONE_OF_EACH, runs

from switchtower.core import codec, events, ids
from switchtower.core.ports import journal
from switchtower.protocols.minicodex import encoder, frame_writer
from switchtower.protocols.minicodex.encoder import MiniCodexStreamState

APPROVED = events.ApprovalDecided("appr_1", events.Verdict.APPROVE, OWNER)
CANCEL = events.RunCancelRequested(OWNER)


def list_statuses(told: list[dict[str, Any]]) -> list[str]:
    return [frame["run_state"]["status"] for frame in told if frame["type"] == "run_status"]


def test_a_plain_run_is_told_in_the_documents_order() -> None:
    told = encode_entries(
        STARTED,
        THINKING,
        events.ThinkingDelta("Hm"),
        events.TextDelta("Hi"),
        events.TextDelta(" there"),
        events.MessageCompleted("asst_1", "Hi there", "Hm"),
        make_run_completed(),
    )
    assert summarise_frames(told) == [
        "run_status starting",
        "user_text hello",
        "run_status running",
        "reasoning Hm",
        "assistant_text Hi",
        "assistant_text  there",
        "run_status finished",
        "turn_done",
    ]


def test_every_frame_says_where_it_stands_and_when() -> None:
    told = encode_entries(STARTED, THINKING, events.TextDelta("Hi"), make_run_completed())
    assert [(frame["event_id"], frame["ts"]) for frame in told] == [
        (1 * 4096, "2025-10-09T08:53:20.001000Z"),
        (1 * 4096 + 1, "2025-10-09T08:53:20.001000Z"),
        (2 * 4096, "2025-10-09T08:53:20.002000Z"),
        (3 * 4096, "2025-10-09T08:53:20.003000Z"),
        (4 * 4096, "2025-10-09T08:53:20.004000Z"),
        (4 * 4096 + 1, "2025-10-09T08:53:20.004000Z"),
    ]
    assert {frame["run_id"] for frame in told} == {RUN_UUID}


def test_a_status_has_the_whole_state_of_its_run() -> None:
    starting, _, running, finished, _ = encode_entries(STARTED, THINKING, make_run_completed())
    assert starting["run_state"] == {
        "run_id": RUN_UUID,
        "status": "starting",
        "started_at": "2025-10-09T08:53:20.001000Z",
        "finished_at": None,
        "pending_approvals": [],
        "last_event_id": starting["event_id"],
    }
    assert running["run_state"] == {**starting["run_state"], "status": "running", "last_event_id": running["event_id"]}
    assert finished["run_state"] == {
        **starting["run_state"],
        "status": "finished",
        "finished_at": "2025-10-09T08:53:20.003000Z",
        "last_event_id": finished["event_id"],
    }


def test_times_are_written_to_the_millisecond_in_utc() -> None:
    frames, _ = encoder.encode_batch(MiniCodexStreamState.make_empty(), SESSION, make_entries([STARTED]))
    assert json.loads(frames[0])["ts"] == "2025-10-09T08:53:20.001Z"
    assert frame_writer.format_timestamp(0) == b"1970-01-01T00:00:00.000Z"


def test_an_approved_call_is_called_asked_about_and_answered() -> None:
    told = encode_entries(
        STARTED, events.MessageCompleted("asst_1", "", calls=(CALL,)), CALLED, ASKED, APPROVED, FINISHED, make_run_completed()
    )
    assert summarise_frames(told) == [
        "run_status starting",
        "user_text hello",
        "run_status running",
        "tool_call",
        "approval_pending",
        "run_status awaiting_approval",
        "approval_decision approve",
        "run_status running",
        "function_call_output",
        "run_status finished",
    ]
    call, pending, awaiting = told[3:6]
    assert (call["name"], call["args"], call["call_id"]) == ("docs_search", CALL.args, "call_1")
    assert (pending["call_id"], pending["tool_key"]) == ("call_1", "docs_search")
    assert json.loads(pending["args_json"]) == CALL.args
    assert awaiting["run_state"]["pending_approvals"] == [{"call_id": "call_1", "tool_key": "docs_search", "args": CALL.args}]
    assert told[7]["run_state"]["pending_approvals"] == []


@pytest.mark.parametrize(
    ("verdict", "decision"),
    [
        (events.Verdict.APPROVE, "approve"),
        (events.Verdict.DENY_CONTINUE, "deny_continue"),
        (events.Verdict.DENY_STOP, "deny_abort"),
    ],
)
def test_each_verdict_has_its_decision(verdict: events.Verdict, decision: str) -> None:
    told = encode_entries(STARTED, CALLED, ASKED, events.ApprovalDecided("appr_1", verdict, OWNER))
    assert [frame["decision"] for frame in told if frame["type"] == "approval_decision"] == [decision]


@pytest.mark.parametrize(
    ("closing", "decision"),
    [
        (events.ApprovalExpired("appr_1"), "deny_abort"),
        (events.ApprovalWithdrawn("appr_1", "answered at the terminal"), "deny_continue"),
    ],
)
def test_a_question_without_a_decision_is_closed_by_the_nearest_that_the_document_has(
    closing: events.AnyEvent, decision: str
) -> None:
    told = encode_entries(STARTED, CALLED, ASKED, closing)
    assert summarise_frames(told)[-3:] == [
        "run_status awaiting_approval",
        f"approval_decision {decision}",
        "run_status running",
    ]


def test_while_one_of_two_questions_is_open_the_run_awaits_it() -> None:
    second = events.ApprovalRequested(
        events.Approval("appr_2", "call_2", "exec", "Run", "make", {"command": "make"}, 1, "f" * 64)
    )
    told = encode_entries(STARTED, CALLED, ASKED, second, APPROVED)
    assert list_statuses(told)[-2:] == ["awaiting_approval", "awaiting_approval"]
    assert [brief["call_id"] for brief in told[-1]["run_state"]["pending_approvals"]] == ["call_2"]


def test_a_call_that_only_a_question_names_is_told_before_it_and_ended_with_the_run() -> None:
    told = encode_entries(STARTED, ASKED, APPROVED, make_run_completed())
    assert summarise_frames(told)[3:5] == ["tool_call", "approval_pending"]
    assert (told[3]["name"], told[3]["args"]) == ("exec", APPROVAL.details)
    output = next(frame for frame in told if frame["type"] == "function_call_output")
    assert output["call_id"] == "call_1"
    assert output["result"]["isError"] is True


def test_a_call_is_told_once_whichever_event_names_it_first() -> None:
    told = encode_entries(
        STARTED, events.MessageCompleted("asst_1", "", calls=(CALL,)), ASKED, CALLED, APPROVED, FINISHED, make_run_completed()
    )
    assert [frame["name"] for frame in told if frame["type"] == "tool_call"] == ["docs_search"]


def test_an_output_without_a_call_has_one_told_before_it() -> None:
    told = encode_entries(STARTED, FINISHED)
    assert summarise_frames(told)[-2:] == ["tool_call", "function_call_output"]
    assert (told[-2]["name"], told[-2]["args"]) == ("docs_search", {})


def test_a_question_about_nothing_that_is_open_changes_nothing() -> None:
    assert summarise_frames(encode_entries(STARTED, THINKING, APPROVED)) == summarise_frames(encode_entries(STARTED, THINKING))


@pytest.mark.parametrize("is_error", [False, True])
def test_a_result_is_a_call_tool_result(is_error: bool) -> None:
    told = encode_entries(STARTED, CALLED, events.ToolFinished("call_1", "docs_search", 3, "found", is_error=is_error))
    assert told[-1]["result"] == {"content": [{"type": "text", "text": "found"}], "isError": is_error}


def test_what_an_mcp_server_answered_is_handed_on_as_it_came() -> None:
    result = {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}], "structuredContent": {"n": 1}}
    told = encode_entries(STARTED, CALLED, events.ToolFinished("call_1", "docs_search", 3, "an image", result=result))
    assert told[-1]["result"] == result


def test_an_abort_ends_as_finished_with_aborting_and_an_error_before_it() -> None:
    not_finished = events.ToolFinished("call_1", "docs_search", 0, "Not finished", is_error=True)
    told = encode_entries(STARTED, CALLED, CANCEL, not_finished, make_run_completed(events.Outcome.CANCELLED))
    assert summarise_frames(told)[4:] == [
        "run_status aborting",
        "function_call_output",
        "error ABORTED",
        "run_status finished",
    ]


def test_a_denial_that_ends_the_run_is_an_abort() -> None:
    told = encode_entries(STARTED, THINKING, make_run_completed(events.Outcome.DENIED))
    assert summarise_frames(told)[3:] == ["run_status aborting", "error ABORTED", "run_status finished", "turn_done"]


def test_a_run_that_is_being_aborted_says_so_once_whatever_closes() -> None:
    told = encode_entries(STARTED, CALLED, ASKED, CANCEL, events.ApprovalWithdrawn("appr_1", "cancelled"), CANCEL)
    assert summarise_frames(told)[-3:] == [
        "run_status awaiting_approval",
        "run_status aborting",
        "approval_decision deny_abort",
    ]
    assert summarise_frames(encode_entries(STARTED, CANCEL)) == [
        "run_status starting",
        "user_text hello",
        "run_status running",
        "run_status aborting",
    ]


def test_a_failure_is_explained_once() -> None:
    raised = events.ErrorRaised("MODEL_ERROR", "The model failed", retryable=True, detail="529")
    told = encode_entries(STARTED, raised, make_run_completed(events.Outcome.FAILED))
    assert summarise_frames(told)[3:] == ["error MODEL_ERROR", "run_status error", "turn_done"]
    assert told[3]["details"] == {"retryable": True, "detail": "529"}
    assert summarise_frames(encode_entries(STARTED, make_run_completed(events.Outcome.FAILED)))[3:] == [
        "error RUN_FAILED",
        "run_status error",
        "turn_done",
    ]


def test_a_message_that_was_not_streamed_is_told_whole() -> None:
    told = encode_entries(
        STARTED, events.MessageCompleted("asst_1", "Hi", "Hm"), events.TextDelta("By"), events.MessageCompleted("a", "By")
    )
    assert summarise_frames(told)[3:] == ["reasoning Hm", "assistant_text Hi", "assistant_text By"]


def test_thinking_that_was_not_streamed_is_told_with_a_text_that_was() -> None:
    told = encode_entries(STARTED, events.TextDelta("Hi"), events.MessageCompleted("asst_1", "Hi", "Hm"))
    assert summarise_frames(told)[3:] == ["assistant_text Hi", "reasoning Hm"]


def test_each_message_is_told_by_its_own_pieces() -> None:
    first = [events.ThinkingDelta("Hm"), events.TextDelta("Hi"), events.MessageCompleted("asst_1", "Hi", "Hm")]
    told = encode_entries(STARTED, *first, events.MessageCompleted("asst_2", "Bye", "So"))
    assert summarise_frames(told)[3:] == ["reasoning Hm", "assistant_text Hi", "reasoning So", "assistant_text Bye"]


def test_what_belongs_to_no_run_does_not_make_one_running() -> None:
    aside = make_entries([events.ErrorRaised("LOW_DISK", "Little space is left")], run_id=None, first=2)
    frames, _ = encoder.encode_batch(MiniCodexStreamState.make_empty(), SESSION, [*make_entries([STARTED]), *aside])
    assert summarise_frames([closed.check(frame) for frame in frames]) == [
        "run_status starting",
        "user_text hello",
        "error LOW_DISK",
    ]


@pytest.mark.parametrize("size", [1, 2, encoder.SMALL_BATCH + 1])
def test_missing_pieces_are_noticed_in_batches_of_any_size(size: int) -> None:
    _, state = encoder.encode_batch(
        MiniCodexStreamState.make_empty(), SESSION, make_entries([STARTED, THINKING, events.TextDelta("He")])
    )
    _, whole = encoder.encode_batch(state, SESSION, make_entries([events.TextDelta("l")] * size, first=4))
    _, torn = encoder.encode_batch(state, SESSION, make_entries([events.TextDelta("l")] * size, first=5))
    assert (whole.torn, torn.torn) == (False, True)


def test_a_retry_is_told_and_the_message_begins_again() -> None:
    retry = events.RetryScheduled(2, 4, 500, "overloaded")
    told = encode_entries(STARTED, events.TextDelta("He"), retry, events.MessageCompleted("asst_1", "Hello"))
    assert summarise_frames(told)[3:] == ["assistant_text He", "error RETRY", "assistant_text Hello"]
    assert told[4]["details"] == {"attempt": 2, "max_attempts": 4, "delay_ms": 500}


def test_a_message_that_reached_the_run_on_its_way_is_told_where_it_did() -> None:
    assert summarise_frames(encode_entries(STARTED, events.MessageDelivered("msg_1", "use tabs")))[-1] == "user_text use tabs"


@pytest.mark.parametrize("purpose", [events.Purpose.COMPACT, events.Purpose.UNDO, events.Purpose.REDO])
def test_housekeeping_has_no_user(purpose: events.Purpose) -> None:
    told = encode_entries(events.RunStarted("keep the names", OWNER, purpose=purpose), make_run_completed())
    assert summarise_frames(told) == ["run_status starting", "run_status running", "run_status finished", "turn_done"]


def test_a_program_begins_with_its_command() -> None:
    told = encode_entries(events.RunStarted("codex --help", OWNER, purpose=events.Purpose.PROGRAM), make_run_completed())
    assert summarise_frames(told)[:3] == ["run_status starting", "user_text codex --help", "run_status running"]


def test_what_was_said_elsewhere_is_part_of_the_transcript_without_a_run() -> None:
    happened = [
        events.MessageImported("user", "look", 1),
        events.MessageImported("assistant", "I will", 2, thinking="Hm", calls=(CALL,)),
        events.MessageImported("tool", "found", 3, call_id="call_1", tool="docs_search"),
    ]
    frames, after = encoder.encode_batch(MiniCodexStreamState.make_empty(), SESSION, make_entries(happened, run_id=None))
    told = [closed.check(frame) for frame in frames]
    assert summarise_frames(told) == [
        "user_text look",
        "reasoning Hm",
        "assistant_text I will",
        "tool_call",
        "function_call_output",
    ]
    assert not any("run_id" in frame for frame in told)
    assert after is MiniCodexStreamState.make_empty()


def test_outside_of_a_run_nothing_is_remembered() -> None:
    for event in ONE_OF_EACH:
        if event.kind != "run.started":
            assert (
                encoder.encode_batch(MiniCodexStreamState.make_empty(), SESSION, make_entries([event]))[1]
                is MiniCodexStreamState.make_empty()
            )


def test_after_a_run_everybody_has_the_same_state() -> None:
    assert (
        encoder.encode_batch(MiniCodexStreamState.make_empty(), SESSION, make_entries([STARTED, CALLED, make_run_completed()]))[1]
        is MiniCodexStreamState.make_empty()
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(ANY_EVENT, max_size=40), st.data())
def test_any_way_to_cut_entries_into_batches_gives_the_same_frames(happened: list[events.AnyEvent], data: st.DataObject) -> None:
    entries = make_entries(happened)
    whole, last = encoder.encode_batch(MiniCodexStreamState.make_empty(), SESSION, entries)
    frames: list[bytes] = []
    state = MiniCodexStreamState.make_empty()
    at = 0
    while at < len(entries):
        batch = entries[at : at + data.draw(st.integers(1, len(entries) - at))]
        told, state = encoder.encode_batch(state, SESSION, batch)
        frames += told
        at += len(batch)
    assert frames == whole
    assert state == last
    places = [frame_writer.parse_event_id(closed.check(frame)["event_id"]) for frame in frames]
    assert all(before < after for before, after in pairwise(places))
    assert all(place == 0 or places[index - 1] == (seq, place - 1) for index, (seq, place) in enumerate(places))


@settings(max_examples=80, deadline=None)
@given(runs())
def test_every_run_ends_and_every_call_has_one_output(happened: list[events.AnyEvent]) -> None:
    told = encode_entries(*happened)
    assert list_statuses(told)[:2] == ["starting", "running"]
    assert [status for status in list_statuses(told) if status in ("finished", "error")] == list_statuses(told)[-1:]
    calls = [frame["call_id"] for frame in told if frame["type"] == "tool_call"]
    outputs = [frame["call_id"] for frame in told if frame["type"] == "function_call_output"]
    assert sorted(calls) == sorted(outputs)
    assert (told[-1]["type"] == "turn_done") == (not outputs)


def test_pieces_are_stored_as_they_are_sent() -> None:
    """A second field of theirs would reach strict clients."""
    for kind in frame_writer.PIECES:
        piece = events.BY_KIND[kind]("words")
        assert msgspec.json.decode(codec.encode(piece)) == {"text": "words"}
        # What another host told is stored with it; such sessions have no pieces of these kinds.
        assert events.BY_KIND[kind].__struct_fields__ == ("text", "relayed")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_piece_arrives_as_it_was_said(text: str) -> None:
    told = encode_entries(STARTED, THINKING, events.TextDelta(text), events.ThinkingDelta(text))
    assert [frame["text"] for frame in told[-2:]] == [text, text]


def test_a_piece_that_is_stored_in_another_way_is_told_all_the_same() -> None:
    spaced = journal.Entry(3, 1_760_000_000_003, RUN, "text.delta", b'{ "text" : "Hi" }')
    entries = make_entries([STARTED, THINKING])
    whole, _ = encoder.encode_batch(MiniCodexStreamState.make_empty(), SESSION, [*entries, spaced])
    assert closed.check(whole[-1])["text"] == "Hi"


@given(st.integers(1, 2**40), st.integers(0, frame_writer.LAST_FRAME_INDEX))
def test_an_event_id_says_where_to_go_on_and_fits_into_a_json_number(seq: int, place: int) -> None:
    assert frame_writer.parse_event_id(frame_writer.make_event_id(seq, place)) == (seq, place)
    assert frame_writer.make_event_id(seq, place) < 2**53
    assert frame_writer.make_event_id(seq, place) < frame_writer.make_event_id(seq + 1, 0)


def test_a_run_id_is_the_same_bits_as_a_uuid_or_one_made_from_its_name() -> None:
    assert frame_writer.make_run_uuid(RUN).decode() == str(ids.to_uuid(RUN))
    made = {frame_writer.make_run_uuid(name) for name in ("run_LOUIE", "run_" + "Z" * 26, "not ours")}
    assert len(made) == 3
    assert all(len(uuid) == 36 for uuid in made)


def test_any_number_of_calls_at_once_stays_within_the_places_of_its_entry() -> None:
    calls = tuple(events.ToolRequest(f"call_{number}", "run", {}) for number in range(9_000))
    frames, _ = encoder.encode_batch(
        MiniCodexStreamState.make_empty(), SESSION, make_entries([events.MessageImported("assistant", "", 1, calls=calls)])
    )
    assert frame_writer.parse_event_id(json.loads(frames[-1])["event_id"])[0] == 1
