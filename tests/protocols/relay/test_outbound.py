"""Each core event as relay sends it, against its golden file: to apps, and of sessions on other hosts."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.relay import samples

from switchtower.core import events
from switchtower.core.fold import make_card
from switchtower.core.ports import journal
from switchtower.protocols.relay import encoder, messages
from switchtower.testing.session_driver import SessionDriver

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VIEWS = {"agent": samples.AGENT, "terminal": samples.TERMINAL, "mirrored": samples.MIRRORED}


def test_every_core_event_has_a_golden_file() -> None:
    assert {path.stem for path in samples.GOLDEN.iterdir()} == set(events.BY_KIND)


@pytest.mark.parametrize("kind", sorted(events.BY_KIND))
def test_an_event_is_sent_as_its_golden_file_has_it(kind: str) -> None:
    committed = (samples.GOLDEN / f"{kind}.json").read_bytes()
    assert samples.encode_golden(kind) == committed, "if this is meant: `python -m tests.protocols.relay.samples`"


@pytest.mark.parametrize("kind", sorted(events.BY_KIND))
def test_an_envelope_can_be_read_as_the_document_has_it(kind: str) -> None:
    for run_id, event in samples.list_samples(kind):
        for about in VIEWS.values():
            entry = samples.make_entry(run_id, samples.make_relayed(event) if about.mirrored else samples.make_own(event))
            frame = encoder.encode_event(about, entry)
            if frame is None:
                continue
            envelope = msgspec.json.decode(frame, type=messages.Envelope)
            assert (envelope.run_id, envelope.host_id) == (samples.SESSION, "host_1")
            assert envelope.seq == (7 if about.mirrored else entry.seq)
            assert json.loads(frame)["id"] == entry.seq, "the place in this journal, for paging"
            assert isinstance(json.loads(frame)["data"], dict)


@pytest.mark.parametrize("kind", sorted(set(events.BY_KIND) - {"host.lost", "host.returned", "session.deleted"}))
def test_of_a_session_elsewhere_only_what_its_host_told_is_passed_on(kind: str) -> None:
    for run_id, event in samples.list_samples(kind):
        if event.relayed is None:
            assert encoder.encode_event(samples.MIRRORED, samples.make_entry(run_id, event)) is None


def test_that_a_host_is_lost_or_back_is_told_without_a_number_of_its_own() -> None:
    for event, type_ in ((events.HostLost("host_1"), "run.lost"), (events.HostReturned("host_1"), "run.found")):
        frame = encoder.encode_event(samples.MIRRORED, samples.make_entry(samples.RUN, event))
        assert frame is not None
        told = json.loads(frame)
        assert told["type"] == type_
        assert "seq" not in told


@given(text=ANY_TEXT, kind=st.sampled_from(sorted(encoder.OUTPUTS)), note=st.none() | ANY_TEXT)
def test_output_goes_the_short_way_unharmed(text: str, kind: str, note: str | None) -> None:
    event: events.AnyEvent = events.TextDelta(text) if kind == "text.delta" else events.ToolProgressed("call_1", text)
    own = encoder.encode_event(samples.TERMINAL, samples.make_entry(samples.RUN, event))
    assert own is not None
    assert json.loads(own)["data"] == {"stream": "stdout", "text": text}

    extra = {} if note is None else {"note": note}
    theirs = msgspec.structs.replace(event, relayed=events.Relayed(7, 1_759_000_000_000, extra))
    passed_on = encoder.encode_event(samples.MIRRORED, samples.make_entry(samples.RUN, theirs))
    assert passed_on is not None
    assert json.loads(passed_on)["data"] == {"stream": "stdout", "text": text, **extra}


@given(type_=ANY_TEXT.filter(bool), host=ANY_TEXT, key=ANY_TEXT)
def test_no_word_of_a_host_breaks_out_of_its_place(type_: str, host: str, key: str) -> None:
    """A type with quotes in it must not become fields of the envelope."""
    said = events.HostEventReceived(type=type_, data={key: type_}, relayed=events.Relayed(3, 1_759_000_000_000))
    about = msgspec.structs.replace(samples.MIRRORED, host_id=host, run_id=type_)
    frame = encoder.encode_event(about, samples.make_entry(samples.RUN, said))
    assert frame is not None
    told = json.loads(frame)
    assert told == {
        "type": type_,
        "ts": "2025-09-27T19:06:40.000Z",
        "host_id": host,
        "run_id": type_,
        "seq": 3,
        "id": 42,
        "data": {key: type_},
    }


@pytest.mark.parametrize("words", ["x" * 4_001, '"' * 4_001, "\\" * 9_000, "é" * 3_000, {"a": ["\x00"] * 3_000}], ids=type)
def test_long_arguments_are_cut_once_and_no_second_time(words: Any) -> None:
    called = events.ToolCalled(call_id="call_1", tool="run", args={"command": words})
    once = samples.encode_frame(samples.AGENT, samples.RUN, called, 1)["data"]["args"]
    assert set(once) == {"truncated"}
    assert len(once["truncated"]) <= encoder.RESULT_LIMIT
    again = events.ToolCalled(call_id="call_1", tool="run", args=once, relayed=events.Relayed(1, 1))
    assert samples.encode_frame(samples.MIRRORED, samples.RUN, again, 1)["data"]["args"] == once


def test_what_only_claims_to_be_cut_is_cut() -> None:
    called = events.ToolCalled(call_id="call_1", tool="run", args={"truncated": "x" * 100_000}, relayed=events.Relayed(1, 1))
    assert (
        len(samples.encode_frame(samples.MIRRORED, samples.RUN, called, 1)["data"]["args"]["truncated"]) <= encoder.RESULT_LIMIT
    )


@pytest.mark.parametrize(("ends", "type_"), [(True, "run.exited"), (False, "run.awaiting_input")])
def test_an_agent_s_run_ends_only_when_nobody_can_send_it_another_message(ends: bool, type_: str) -> None:
    about = msgspec.structs.replace(samples.AGENT, ends=ends)
    completed = events.RunCompleted(outcome=events.Outcome.FAILED, summary="Done", exit_code_hint=4)
    told = samples.encode_frame(about, samples.RUN, completed, 1)
    assert told["type"] == type_
    assert told["data"] == ({"exit_code": 4} if ends else {"reason": "prompt", "prompt": "Done"})


@pytest.mark.parametrize(
    ("via", "actor"), [("web", "web"), ("app", "web"), ("cli", "cli"), ("local", "cli"), ("host", "system"), ("", "system")]
)
def test_who_it_was_is_one_of_the_document_s_words(via: str, actor: str) -> None:
    assert encoder.convert_actor(events.Actor(name="ada", via=via)) == actor


def test_a_card_says_the_same_of_a_session_as_the_session_itself() -> None:
    table = SessionDriver(mode="headless")
    about = encoder.EnvelopeHeader.from_session(table.session, "host_me")
    assert about == encoder.EnvelopeHeader.from_card(make_card(table.session), "host_me")
    assert about == encoder.EnvelopeHeader("sess_01", "sess_01", "host_me", mirrored=False, is_terminal=False, ends=True)


def test_frames_are_in_the_order_of_entries_without_what_has_no_word() -> None:
    entries: list[journal.Entry] = [
        samples.make_entry(samples.RUN, events.TextDelta("a"), 1),
        samples.make_entry(samples.RUN, events.PhaseChanged(phase="Thinking"), 2),
        samples.make_entry(samples.RUN, events.ToolProgressed("call_1", "b"), 3),
    ]
    told = [json.loads(frame) for frame in encoder.encode_batch(samples.AGENT, entries)]
    assert [(frame["seq"], frame["data"]["text"]) for frame in told] == [(1, "a"), (3, "b")]
