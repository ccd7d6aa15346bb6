"""Pieces of a message as updates: nothing is lost, nothing grows with the message, and batches do not matter."""

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.pi.reels import (
    CAST,
    READ,
    SESSION,
    STARTED,
    SUCCESS,
    USAGE,
    encode_entries,
    filter_by_type,
    list_events,
    make_entries,
    summarise_frames,
)
from tests.protocols.pi.strategies import ANY_EVENT, LONG_TEXTS, PIECES, runs

from switchtower.core import events
from switchtower.core.ports import journal
from switchtower.protocols.pi import encoder, event_messages, stream_state
from switchtower.protocols.pi.stream_state import PiStreamState


@settings(max_examples=80, deadline=None)
@given(st.lists(ANY_EVENT, max_size=40), st.data())
def test_any_way_to_cut_entries_into_batches_gives_the_same_frames(happened: list[events.AnyEvent], data: st.DataObject) -> None:
    entries = make_entries(happened)
    whole, last = encoder.encode_batch(PiStreamState.empty(), SESSION, entries, CAST)
    frames: list[bytes] = []
    state = PiStreamState.empty()
    at = 0
    while at < len(entries):
        size = data.draw(st.integers(1, len(entries) - at))
        batch, state = encoder.encode_batch(state, SESSION, entries[at : at + size], CAST)
        frames += batch
        at += size
    assert frames == whole
    assert encoder.encode_catch_up(state) == encoder.encode_catch_up(last)
    list_events(frames)


@settings(max_examples=80, deadline=None)
@given(st.lists(runs(), min_size=1, max_size=2))
def test_what_begins_ends_however_a_run_does(several: list[list[events.AnyEvent]]) -> None:
    open_: list[str] = []
    tools: list[str] = []
    for event in encode_entries(*(event for run in several for event in run)):
        what, _, how = event["type"].rpartition("_")
        if what not in ("agent", "turn", "message", "tool_execution"):
            continue
        stack = tools if what == "tool_execution" else open_
        name = event["message"]["role"] if what == "message" else event.get("toolCallId", what)
        if how == "start":
            assert stack is tools or len(stack) == {"agent": 0, "turn": 1, "message": 2}[what]
            stack.append(name)
        elif how == "end":
            assert stack is tools or name == stack[-1]
            stack.remove(name)
        else:
            assert name in stack
    assert open_ == tools == []


@settings(deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=30))
def test_a_client_that_draws_from_the_pieces_loses_nothing(pieces: list[events.TextDelta | events.ThinkingDelta]) -> None:
    wholes = {"text": "", "thinking": ""}
    for piece in pieces:
        wholes[stream_state.FIELDS[piece.kind]] += piece.text
    happened = encode_entries(
        STARTED, *pieces, events.MessageCompleted("asst_1", wholes["text"], wholes["thinking"]), USAGE, SUCCESS
    )
    drawn: dict[int, str] = {}
    ended: dict[int, str] = {}
    for update in (event["assistantMessageEvent"] for event in filter_by_type(happened, "message_update")):
        match update["type"].partition("_")[2]:
            case "start":
                assert update["contentIndex"] == len(drawn)
                drawn[update["contentIndex"]] = ""
            case "delta":
                drawn[update["contentIndex"]] += update["delta"]
            case "end":
                ended[update["contentIndex"]] = update["content"]
    content = filter_by_type(happened, "message_end")[-1]["message"]["content"]
    assert [drawn[index] for index in sorted(drawn)] == [block.get("text", block.get("thinking")) for block in content]
    assert ended == drawn
    assert sum(
        event["assistantMessageEvent"]["type"].endswith("_delta") for event in filter_by_type(happened, "message_update")
    ) == len(pieces)


@given(st.lists(LONG_TEXTS, min_size=1, max_size=20))
def test_the_message_of_an_update_shows_all_of_a_short_text_and_the_end_of_a_long_one(texts: list[str]) -> None:
    said = ""
    updates = filter_by_type(encode_entries(STARTED, *map(events.TextDelta, texts)), "message_update")[1:]
    for text, update in zip(texts, updates, strict=True):
        said += text
        (block,) = update["message"]["content"]
        if len(said) <= 1_024:
            assert block["text"] == said
            assert "truncated" not in update["message"]
        else:
            assert block["text"] == "…" + said[-512:]
            assert update["message"]["truncated"] is True


@given(LONG_TEXTS, LONG_TEXTS)
def test_an_update_from_the_template_is_what_the_encoder_would_send(first: str, second: str) -> None:
    pieces = make_entries([events.ThinkingDelta(first), events.TextDelta(second)])
    frames, _ = encoder.encode_batch(PiStreamState.empty(), SESSION, pieces, CAST)
    is_cut = len(first) > 1_024 or len(second) > 1_024
    message = event_messages.Assistant(
        content=(event_messages.Thinking(_show_text(first)), event_messages.Text(_show_text(second))),
        api=CAST.api,
        provider=CAST.provider,
        model=CAST.model,
        timestamp=pieces[0].ts_ms,
        truncated=True if is_cut else msgspec.UNSET,
    )
    event = {
        "type": "message_update",
        "message": message,
        "assistantMessageEvent": {"type": "text_delta", "contentIndex": 1, "delta": second, "partial": message},
    }
    assert frames[-1] == msgspec.json.encode({"type": "event", "sessionId": SESSION, "event": event})
    assert b"\n" not in frames[-1]


def _show_text(text: str) -> str:
    return text if len(text) <= 1_024 else "…" + text[-512:]


def _encode_tokens(tokens: int) -> int:
    words = [f" token{number % 7}" for number in range(tokens)]
    pieces = map(events.TextDelta, words)
    happened = [STARTED, *pieces, events.MessageCompleted("asst_1", "".join(words)), USAGE, SUCCESS]
    frames, _ = encoder.encode_batch(PiStreamState.empty(), SESSION, make_entries(happened), CAST)
    return sum(map(len, frames))


def test_a_message_twice_as_long_takes_twice_the_bytes_and_not_four_times() -> None:
    assert _encode_tokens(8_000) < 2.1 * _encode_tokens(4_000)
    assert _encode_tokens(8_000) < 20_000_000


def test_going_back_and_forth_between_thinking_and_text_stays_linear() -> None:
    def size(turns: int) -> int:
        pieces = [piece for _ in range(turns) for piece in (events.ThinkingDelta("hm " * 20), events.TextDelta("so " * 20))]
        return sum(map(len, encoder.encode_batch(PiStreamState.empty(), SESSION, make_entries(pieces), CAST)[0]))

    assert size(2_000) < 2.1 * size(1_000)


def test_many_calls_with_long_arguments_stay_linear_and_are_told_whole() -> None:
    def calls(count: int) -> list[dict[str, Any]]:
        requests = tuple(
            events.ToolRequest(call_id=f"call_{number}", tool="write_file", args={"content": "x" * 2_000})
            for number in range(count)
        )
        return encode_entries(STARTED, events.MessageCompleted("asst_1", "", calls=requests), USAGE)

    def size(count: int) -> int:
        return len(json.dumps(calls(count)))

    assert size(400) < 2.1 * size(200)
    happened = calls(20)
    ends = [
        event for event in filter_by_type(happened, "message_update") if event["assistantMessageEvent"]["type"] == "toolcall_end"
    ]
    assert [event["assistantMessageEvent"]["toolCall"]["id"] for event in ends] == [f"call_{number}" for number in range(20)]
    assert all(event["assistantMessageEvent"]["toolCall"]["arguments"] == {"content": "x" * 2_000} for event in ends)
    assert all(event["message"]["truncated"] is True for event in ends)
    assert ends[-1]["message"]["content"][0] == {"type": "toolCall", "id": "call_0", "name": "write_file", "arguments": {}}


def test_the_output_of_a_tool_is_shown_by_its_end_and_told_by_its_pieces() -> None:
    call = events.ToolCalled("call_1", "run", {"command": "x" * 5_000})
    happened = encode_entries(call, *(events.ToolProgressed("call_1", f"{number:04} ") for number in range(2_000)))
    updates = filter_by_type(happened, "tool_execution_update")
    assert "".join(update["delta"] for update in updates) == "".join(f"{number:04} " for number in range(2_000))
    assert "truncated" not in updates[0]["partialResult"]
    last = updates[-1]["partialResult"]
    assert last["truncated"] is True
    assert last["content"][0]["text"].startswith("…")
    assert last["content"][0]["text"].endswith("1998 1999 ")
    assert len(last["content"][0]["text"]) == 2_049
    assert updates[-1]["args"] == {}


def test_a_piece_that_another_encoder_stored_is_told_too() -> None:
    entry = journal.Entry(1, 1, "run_1", "text.delta", b'{ "text" : "a\\u0062\\n" }')
    frames, _ = encoder.encode_batch(PiStreamState.empty(), SESSION, [entry], CAST)
    assert list_events(frames)[-1]["assistantMessageEvent"]["delta"] == "ab\n"


def test_a_call_without_words_has_the_first_place_in_the_content() -> None:
    happened = encode_entries(STARTED, events.MessageCompleted("asst_1", "", calls=(READ,)), USAGE)
    assert summarise_frames(happened)[-4:] == [
        "message_update toolcall_start",
        "message_update toolcall_delta",
        "message_update toolcall_end",
        "message_end assistant toolUse",
    ]
    assert happened[-2]["assistantMessageEvent"]["contentIndex"] == 0
