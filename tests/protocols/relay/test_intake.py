"""What comes in from a host, made whole: whatever the order and however often, each message is let through once, in order."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.protocols.relay import messages
from switchtower.protocols.relay.hub import mirror


def make_message(seq: int, prev_seq: int | None = None) -> messages.Envelope:
    return messages.Envelope(type="run.output", run_id="run-7", seq=seq, prev_seq=prev_seq)


def list_seqs(envelopes: list[messages.Envelope]) -> list[int | None]:
    return [envelope.seq for envelope in envelopes]


def test_what_comes_in_order_goes_through_at_once() -> None:
    run = mirror.ReorderBuffer(0)
    assert [list_seqs(run.add(make_message(seq))) for seq in (1, 2, 3)] == [[1], [2], [3]]
    assert run.last_seq == 3
    assert not run.has_gap


def test_it_goes_on_from_what_we_have() -> None:
    run = mirror.ReorderBuffer(7)
    assert list_seqs(run.add(make_message(7))) == []
    assert list_seqs(run.add(make_message(8))) == [8]


def test_what_was_let_through_is_not_let_through_again() -> None:
    run = mirror.ReorderBuffer(0)
    run.add(make_message(1))
    run.add(make_message(2))
    assert [list_seqs(run.add(make_message(seq))) for seq in (1, 2, 1)] == [[], [], []]
    assert run.last_seq == 2


def test_what_is_behind_a_hole_waits_for_it() -> None:
    run = mirror.ReorderBuffer(0)
    assert list_seqs(run.add(make_message(3))) == []
    assert list_seqs(run.add(make_message(2))) == []
    assert run.has_gap
    assert run.last_seq == 0, "an acknowledgement across the hole would make the host forget it"
    assert list_seqs(run.add(make_message(1))) == [1, 2, 3]
    assert not run.has_gap


def test_a_hole_that_the_host_says_is_none_is_none() -> None:
    run = mirror.ReorderBuffer(0)
    assert list_seqs(run.add(make_message(2, prev_seq=0))) == [2]
    assert list_seqs(run.add(make_message(9, prev_seq=2))) == [9]
    assert list_seqs(run.add(make_message(12, prev_seq=11))) == []
    assert list_seqs(run.add(make_message(11, prev_seq=9))) == [11, 12]


def test_a_host_that_forgot_what_came_before_is_believed() -> None:
    """Its `prev_seq` is older than what we have: nothing is missing between."""
    run = mirror.ReorderBuffer(5)
    assert list_seqs(run.add(make_message(8, prev_seq=3))) == [8]


def test_what_will_not_come_is_given_up_up_to_the_next_hole() -> None:
    run = mirror.ReorderBuffer(0)
    for seq in (3, 4, 7, 8, 12):
        assert run.add(make_message(seq)) == []
    assert list_seqs(run.skip_gap()) == [3, 4]
    assert run.has_gap
    assert list_seqs(run.skip_gap()) == [7, 8]
    assert list_seqs(run.skip_gap()) == [12]
    assert run.skip_gap() == []
    assert not run.has_gap
    assert run.last_seq == 12
    assert run.add(make_message(5)) == [], "what comes after all comes too late"


def test_there_is_an_end_to_what_is_held_back() -> None:
    run = mirror.ReorderBuffer(0)
    for seq in range(2, mirror.MAX_HELD + 2):
        assert not run.is_full
        run.add(make_message(seq))
    assert run.is_full
    assert list_seqs(run.skip_gap()) == list(range(2, mirror.MAX_HELD + 2))
    assert not run.is_full


@st.composite
def numbered_messages(draw: st.DrawFn) -> list[messages.Envelope]:
    """A host's messages: without holes, or with holes that each message tells of."""
    if draw(st.booleans()):
        return [make_message(seq) for seq in range(1, draw(st.integers(1, 25)) + 1)]
    told = sorted(draw(st.sets(st.integers(1, 200), min_size=1, max_size=25)))
    return [make_message(seq, prev_seq=before) for before, seq in zip([0, *told], told, strict=False)]


@given(numbered_messages(), st.data())
def test_whatever_the_order_and_however_often_the_exact_sequence_comes_out(
    told: list[messages.Envelope], data: st.DataObject
) -> None:
    again = data.draw(st.lists(st.sampled_from(told), max_size=20))
    arriving = data.draw(st.permutations([*told, *again]))
    known = data.draw(st.sampled_from([0, *[envelope.seq or 0 for envelope in told]]))
    run = mirror.ReorderBuffer(known)
    out: list[messages.Envelope] = []
    for envelope in arriving:
        out += run.add(envelope)
        # Whatever the moment: what was let through is a beginning of what was told.
        assert list_seqs(out) == [envelope.seq for envelope in told if known < (envelope.seq or 0) <= run.last_seq]
    assert list_seqs(out) == [envelope.seq for envelope in told if (envelope.seq or 0) > known]
    assert not run.has_gap


@given(st.lists(st.tuples(st.integers(1, 40), st.none() | st.integers(0, 60), st.booleans()), max_size=60))
def test_whatever_a_hostile_host_numbers_nothing_goes_through_twice_or_backwards(
    arriving: list[tuple[int, int | None, bool]],
) -> None:
    run = mirror.ReorderBuffer(0)
    out: list[int | None] = []
    for seq, prev_seq, impatient in arriving:
        out += list_seqs(run.add(make_message(seq, prev_seq)))
        if impatient:
            out += list_seqs(run.skip_gap())
    while run.has_gap:
        before = run.last_seq
        out += list_seqs(run.skip_gap())
        assert run.last_seq > before
    assert out == sorted(set(out), key=lambda seq: seq or 0)
    assert run.last_seq == (out[-1] if out else 0)


@pytest.mark.parametrize("seq", [0, -1, 2**53, "1", 1.5, None, True])
def test_a_number_that_is_none_is_refused_before_it_comes_here(seq: object) -> None:
    frame = msgspec.json.encode({"type": "run.output", "run_id": "run-7", "seq": seq})
    if seq is None:
        assert msgspec.json.decode(frame, type=messages.Envelope).seq is None
        return
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(frame, type=messages.Envelope)
