"""Each core event as push sends it, against its golden file; and the short ways out against the long ones."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import schema_check
from tests.protocols.push import samples

from switchtower.core import codec, events
from switchtower.core.session import Session
from switchtower.protocols.push import encoder, inbound, messages
from switchtower.testing.session_driver import SessionDriver

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def test_every_core_event_has_samples_and_a_golden_file() -> None:
    assert samples.SAMPLES.keys() == events.BY_KIND.keys()
    for kind, cases in samples.SAMPLES.items():
        assert {event.kind for _, event in cases} == {kind}
    assert {path.stem for path in samples.GOLDEN.iterdir()} == set(events.BY_KIND)


@pytest.mark.parametrize("kind", sorted(events.BY_KIND))
def test_an_event_is_sent_as_its_golden_file_has_it(kind: str) -> None:
    committed = (samples.GOLDEN / f"{kind}.json").read_bytes()
    assert samples.encode_golden(kind) == committed, "if this is meant: `python -m tests.protocols.push.samples`"
    # The order of fields counts too: a frame is compared byte for byte.
    assert samples.encode_sample(kind) == [msgspec.json.encode(case["frame"]) for case in json.loads(committed)]


@pytest.mark.requirement("push:envelope:closed-when-sent")
@pytest.mark.parametrize("kind", sorted(events.BY_KIND))
def test_an_event_as_it_is_sent_is_valid(kind: str) -> None:
    for frame in samples.encode_sample(kind):
        schema_check.ANY_MESSAGE.validate(json.loads(frame))


@pytest.mark.requirement("push:event:catalogue")
def test_core_events_become_every_event_of_the_catalogue_and_no_other() -> None:
    types = {json.loads(frame)["type"] for kind in samples.SAMPLES for frame in samples.encode_sample(kind)}
    assert types == messages.EVENTS.keys()


@pytest.mark.requirement("push:event:seq-monotonic")
def test_each_entry_is_exactly_one_frame_with_its_own_number() -> None:
    everything = [case for cases in samples.SAMPLES.values() for case in cases]
    entries = [samples.make_entry(run_id, event, seq) for seq, (run_id, event) in enumerate(everything, start=1)]
    frames = [json.loads(frame) for frame in encoder.encode_batch(samples.SESSION, entries)]
    assert [frame["seq"] for frame in frames] == [entry.seq for entry in entries]
    assert [frame["ts"] for frame in frames] == [entry.ts_ms for entry in entries]


@given(kind=st.sampled_from(sorted(encoder.SENT_AS_STORED)), text=ANY_TEXT, seq=st.integers(1, 2**53))
def test_what_is_sent_as_stored_is_what_decoding_and_encoding_would_send(kind: str, text: str, seq: int) -> None:
    event = msgspec.convert({"text": text}, events.BY_KIND[kind])
    entry = samples.make_entry(samples.RUN, event, seq)
    (quick,) = encoder.encode_batch(samples.SESSION, [entry])
    slow = encoder.encode_event(samples.SESSION, samples.RUN, entry.seq, entry.ts_ms, codec.decode(kind, entry.data))
    assert quick == slow
    assert b"\n" not in quick
    assert json.loads(quick)["payload"] == {"text": text}


@given(number=st.integers(0, 2**63), ts=st.integers(0, 2**53))
def test_a_pong_from_the_template_is_what_the_encoder_would_send(number: int, ts: int) -> None:
    request_id = f"req_{number}"
    assert encoder.encode_pong(request_id, ts) == encoder.encode_response(request_id, "ping", None, messages.Pong(True, ts))


def snapshot_of(session: Session, last_seen_seq: int, earliest_seq: int) -> list[dict[str, object]]:
    told = encoder.encode_gap(session, last_seen_seq, earliest_seq, 5, inbound.get_next_seq_offset(last_seen_seq))
    frames = [json.loads(frame) for frame in told]
    for frame in frames:
        schema_check.ANY_MESSAGE.validate(frame)
    return frames


@pytest.mark.requirement("push:replay:gap-warning")
def test_a_gap_has_the_last_two_numbers_before_what_follows_in_a_new_numbering() -> None:
    table = SessionDriver()
    run_id = table.send("hello")
    table.emit(run_id, events.TextDelta(text="so far"))
    approval_id = table.request_approval(run_id)
    warning, snapshot = snapshot_of(table.session, last_seen_seq=0, earliest_seq=3)
    assert (warning["seq"], snapshot["seq"]) == (
        inbound.SEQ_STRIDE + table.session.seq - 1,
        inbound.SEQ_STRIDE + table.session.seq,
    )
    assert warning["payload"] == {
        "code": "EVENT_GAP",
        "message": "Replay gap detected; snapshot sent.",
        "detail": "Requested lastSeenSeq=0 but earliest retained seq is 3",
    }
    payload = snapshot["payload"]
    assert isinstance(payload, dict)
    assert (payload["state"], payload["activeRunId"], payload["lastAssistantText"]) == ("awaiting_approval", run_id, "so far")
    assert payload["pendingApproval"]["approvalId"] == approval_id


@pytest.mark.requirement("push:replay:gap-warning")
def test_a_session_of_one_event_has_two_numbers_for_a_gap() -> None:
    warning, snapshot = snapshot_of(SessionDriver().session, last_seen_seq=9, earliest_seq=1)
    assert (warning["type"], warning["seq"]) == ("warning", inbound.SEQ_STRIDE)
    assert (snapshot["type"], snapshot["seq"]) == ("session_snapshot", inbound.SEQ_STRIDE + 1)
    assert warning["payload"]["detail"] == "Requested lastSeenSeq=9 but the last seq is 1"  # type: ignore[index]


@given(last_seen=st.integers(0, 2**53 - 1), seq=st.integers(1, inbound.SEQ_STRIDE - 1))
def test_a_number_in_the_next_numbering_is_above_the_cursor_and_has_the_same_place(last_seen: int, seq: int) -> None:
    number = inbound.get_next_seq_offset(last_seen) + seq
    assert number > last_seen or last_seen >= 9_007_198 * inbound.SEQ_STRIDE, "unless there is no higher number"
    assert number < 2**53
    assert inbound.get_journal_seq(number) == seq
    assert inbound.get_seq_offset(number) + seq == number
