"""A snapshot is what a client holds that was told everything, however the entries came, and whatever retention has removed."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.minicodex import closed
from tests.protocols.minicodex.tales import (
    ASKED,
    CALLED,
    FINISHED,
    RUN_UUID,
    SESSION,
    STARTED,
    THINKING,
    FoldingClient,
    make_entries,
    make_run_completed,
)
from tests.protocols.pi.strategies import ANY_EVENT, runs

from switchtower.core import codec, events
from switchtower.core.ports import journal
from switchtower.protocols.minicodex import encoder, frame_writer
from switchtower.protocols.minicodex.encoder import MiniCodexStreamState
from switchtower.protocols.minicodex.session_views import TranscriptSnapshot

HISTORIES = st.lists(ANY_EVENT, max_size=25) | st.lists(runs(), max_size=3).map(
    lambda several: [e for run in several for e in run]
)


def list_texts(snapshot: TranscriptSnapshot) -> dict[str, Any]:
    return closed.check(snapshot.encode_frame(["replay"], with_transcript=True))


def make_snapshot(entries: list[journal.Entry]) -> TranscriptSnapshot:
    snapshot = TranscriptSnapshot(SESSION)
    snapshot.add(entries)
    return snapshot


@settings(max_examples=80, deadline=None)
@given(HISTORIES, st.data())
def test_a_client_that_folds_every_frame_holds_what_the_snapshot_says_at_every_prefix(
    happened: list[events.AnyEvent], data: st.DataObject
) -> None:
    entries = make_entries(happened)
    client, snapshot, state = FoldingClient(), TranscriptSnapshot(SESSION), MiniCodexStreamState.make_empty()
    assert list_texts(snapshot) == client.make_snapshot()
    at = 0
    while at < len(entries):
        batch = entries[at : at + data.draw(st.integers(1, len(entries) - at))]
        frames, state = encoder.encode_batch(state, SESSION, batch)
        for frame in frames:
            client.apply_frame(frame)
        assert snapshot.add(batch) == frames
        assert list_texts(snapshot) == client.make_snapshot()
        assert snapshot.stream_state == state
        at += len(batch)
    assert make_snapshot(entries).encode_frame([], with_transcript=True) == snapshot.encode_frame([], with_transcript=True)


@pytest.mark.parametrize("outcome", events.Outcome)
def test_an_ended_run_stays_in_the_snapshot_but_is_not_active(outcome: events.Outcome) -> None:
    snapshot = list_texts(make_snapshot(make_entries([STARTED, events.TextDelta("Hi"), make_run_completed(outcome)])))
    assert snapshot["run_state"]["run_id"] == RUN_UUID
    assert snapshot["run_state"]["last_event_id"] == snapshot["event_id"] == snapshot["session_state"]["last_event_id"]
    assert snapshot["run_state"]["finished_at"] is not None
    assert snapshot["session_state"]["active_run_id"] is None
    assert snapshot["session_state"]["run_counter"] == 1


def test_what_a_failed_model_call_had_streamed_is_not_in_a_snapshot() -> None:
    retry = events.RetryScheduled(2, 4, 500, "overloaded")
    again = [events.TextDelta("Hello"), events.MessageCompleted("asst_1", "Hello")]
    snapshot = list_texts(make_snapshot(make_entries([STARTED, THINKING, events.TextDelta("He"), retry, *again])))
    assert snapshot["transcript"] == [{"type": "user_text", "text": "hello"}, {"type": "assistant_text", "text": "Hello"}]


def test_a_warning_in_the_middle_of_a_void_message_keeps_nothing_of_it() -> None:
    retry, stalled = events.RetryScheduled(2, 4, 500, "overloaded"), events.WarningRaised("MODEL_STALLED", "No data")
    snapshot = list_texts(make_snapshot(make_entries([STARTED, events.TextDelta("He"), stalled, events.TextDelta("l"), retry])))
    assert snapshot["transcript"] == [{"type": "user_text", "text": "hello"}]


def test_a_snapshot_in_the_middle_of_a_run_has_what_is_asked() -> None:
    snapshot = list_texts(make_snapshot(make_entries([STARTED, CALLED, ASKED])))
    assert snapshot["session_state"]["active_run_id"] == RUN_UUID
    assert snapshot["run_state"]["status"] == "awaiting_approval"
    assert snapshot["run_state"]["pending_approvals"] == [
        {"call_id": "call_1", "tool_key": "docs_search", "args": {"query": "moss", "event_id": 1}}
    ]


def test_the_transcript_is_left_out_when_it_is_not_wanted_and_the_request_is_named() -> None:
    snapshot = make_snapshot(make_entries([STARTED, events.TextDelta("Hi"), make_run_completed()]))
    short = closed.check(snapshot.encode_frame(["replay"], with_transcript=False, req_id='r"1'))
    assert short == {**list_texts(snapshot), "transcript": [], "req_id": 'r"1'}
    assert len(list_texts(snapshot)["transcript"]) == 2


def test_what_a_tool_said_cannot_pass_for_an_envelope() -> None:
    args = {"x": 1, "event_id": 5, "run_id": RUN_UUID, "ts": "2020-01-01T00:00:00.000Z"}
    happened = [
        STARTED,
        events.ToolCalled("c", "t", args),
        events.ToolFinished("c", "t", 1, "", result=args),
        make_run_completed(),
    ]
    assert list_texts(make_snapshot(make_entries(happened)))["transcript"][1:] == [
        {"type": "tool_call", "name": "t", "args": args, "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "result": args},
    ]


STREAMED = [
    STARTED,
    THINKING,
    events.ThinkingDelta("Hm"),
    events.ThinkingDelta("m"),
    events.TextDelta("Hel"),
    events.TextDelta("lo"),
    events.MessageCompleted("asst_1", "Hello", "Hmm"),
    CALLED,
    THINKING,
    FINISHED,
    events.TextDelta("By"),
    events.TextDelta("e"),
    events.MessageCompleted("asst_2", "Bye"),
    make_run_completed(),
]

NOT_STREAMED = [
    STARTED,
    THINKING,
    events.MessageCompleted("asst_1", "Hello", "Hmm"),
    CALLED,
    THINKING,
    FINISHED,
    events.MessageCompleted("asst_2", "More"),
    THINKING,
    events.MessageDelivered("msg_1", "use tabs"),
    events.MessageCompleted("asst_3", "Bye", "So"),
    make_run_completed(),
]
PRUNED = [
    pytest.param(happened, up_to, id=f"{name}-{up_to}")
    for name, happened in (("streamed", STREAMED), ("whole", NOT_STREAMED))
    for up_to in range(len(happened) + 1)
]


def join_neighbours(transcript: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring texts of one type together."""
    joined: list[dict[str, Any]] = []
    for item in transcript:
        if joined and "text" in item and joined[-1]["type"] == item["type"]:
            joined[-1] = {**item, "text": joined[-1]["text"] + item["text"]}
        else:
            joined.append(item)
    return joined


@pytest.mark.parametrize("page", [1, 3, 100])
@pytest.mark.parametrize(("happened", "pruned_up_to"), PRUNED)
def test_retention_takes_nothing_from_the_transcript(happened: list[events.AnyEvent], pruned_up_to: int, page: int) -> None:
    entries = make_entries(happened)
    left = [entry for entry in entries if entry.seq > pruned_up_to or not events.BY_KIND[entry.kind].prunable]
    snapshot = TranscriptSnapshot(SESSION)
    for at in range(0, len(left), page):
        snapshot.add(left[at : at + page])
    assert join_neighbours(list_texts(snapshot)["transcript"]) == join_neighbours(
        list_texts(make_snapshot(entries))["transcript"]
    )
    assert list_texts(snapshot)["run_state"] == list_texts(make_snapshot(entries))["run_state"]
    assert snapshot.last_event_id == make_snapshot(entries).last_event_id


@pytest.mark.parametrize(("happened", "pruned_up_to"), PRUNED)
def test_who_comes_back_after_pruning_is_told_exactly_what_is_missing(happened: list[events.AnyEvent], pruned_up_to: int) -> None:
    entries = make_entries(happened)
    live, _ = encoder.encode_batch(MiniCodexStreamState.make_empty(), SESSION, entries)
    left = [entry for entry in entries if entry.seq > pruned_up_to or not events.BY_KIND[entry.kind].prunable]
    for index, frame in enumerate(live):
        event_id = json.loads(frame)["event_id"]
        seq, _ = frame_writer.parse_event_id(event_id)
        if any(entry.seq > seq and entry not in left for entry in entries):
            continue  # a gap: the peer says so
        _, state = encoder.encode_batch(MiniCodexStreamState.make_empty(), SESSION, [entry for entry in left if entry.seq < seq])
        last_seen = next((entry for entry in left if entry.seq == seq), None)
        told, state = encoder.encode_rest_of_entry(state, SESSION, last_seen, event_id)
        rest, _ = encoder.encode_batch(state, SESSION, [entry for entry in left if entry.seq > seq])
        assert told + rest == live[index + 1 :]


def test_who_has_seen_nothing_is_told_everything() -> None:
    assert encoder.encode_rest_of_entry(MiniCodexStreamState.make_empty(), SESSION, None, 0) == (
        [],
        MiniCodexStreamState.make_empty(),
    )


def test_an_empty_batch_changes_nothing() -> None:
    snapshot = make_snapshot(make_entries([STARTED]))
    before = snapshot.encode_frame([], with_transcript=True)
    assert snapshot.add([]) == []
    assert snapshot.encode_frame([], with_transcript=True) == before


def test_frames_without_a_run_do_not_move_the_runs_last_event() -> None:
    entries = make_entries([STARTED, events.TextDelta("Hi"), make_run_completed()])
    aside = events.ErrorRaised("LOW_DISK", "Little space is left")
    later = journal.Entry(4, 1_760_000_009_000, None, aside.kind, codec.encode(aside))
    snapshot = list_texts(make_snapshot([*entries, later]))
    assert snapshot["event_id"] == frame_writer.make_event_id(4, 0)
    assert frame_writer.parse_event_id(snapshot["run_state"]["last_event_id"])[0] == 3
