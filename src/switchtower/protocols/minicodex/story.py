"""Journal entries to the frames that MiniCodex clients follow a session by. Pure: what must be remembered comes in and goes out.

Any way to cut the entries into batches gives the same frames. Clients whose state is the same object can share the frames of
a batch; after each run everybody's is.

What a model call had streamed before it failed is void. `RetryScheduled` becomes an `error` with the code `RETRY`: a client
drops what it was sent of the message before it, as a snapshot does.
"""

from collections.abc import Sequence

import msgspec

from switchtower.core import events, journal
from switchtower.protocols.minicodex import scribe
from switchtower.protocols.minicodex.plot import MiniCodexStreamState
from switchtower.protocols.minicodex.stamps import parse_event_id
from switchtower.protocols.minicodex.telling import MiniCodexEventEncoder

SMALL_BATCH = 8
"""Up to so many pieces are told without taking the story apart, which would cost more than they do."""
TEXT, THINKING = events.TextDelta.kind, events.ThinkingDelta.kind


def encode_batch(
    state: MiniCodexStreamState, session_id: str, entries: Sequence[journal.Entry]
) -> tuple[list[bytes], MiniCodexStreamState]:
    """The frames for these entries, and the state for the next ones."""
    if len(entries) <= SMALL_BATCH and _is_plain_continuation(state, entries):
        frames = [scribe.encode_piece(entry) for entry in entries]
        return frames, msgspec.structs.replace(state, seq=entries[-1].seq)
    teller = MiniCodexEventEncoder(state, session_id)
    add = teller.add
    for entry in entries:
        add(entry)
    return teller.frames, teller.build_state()


def _is_plain_continuation(state: MiniCodexStreamState, entries: Sequence[journal.Entry]) -> bool:
    """More pieces of what is being streamed, and nothing is missing: only the place in the journal changes."""
    seq = state.seq
    for entry in entries:
        seq += 1
        is_told = state.text_sent if entry.kind == TEXT else state.reasoning_sent if entry.kind == THINKING else False
        if not is_told or entry.seq != seq or entry.run_id is None or not entry.data.startswith(scribe.STORED_OPEN):
            return False
    return bool(entries)


def encode_rest_of_entry(
    before: MiniCodexStreamState, session_id: str, entry: journal.Entry | None, last_seen_event_id: int
) -> tuple[list[bytes], MiniCodexStreamState]:
    """What a client has not seen of the entry that it saw last, and its state for the ones behind it.

    `before` is what came of the entries in front of that one, as far as the journal still has them. `entry` is None when
    retention has removed it. What is missing were pieces and phases: with them the client was told that the run is running, and
    the message under way as far as it had come.
    """
    seq, place = parse_event_id(last_seen_event_id)
    frames, state = encode_batch(_advance_to(before, seq - 1), session_id, [] if entry is None else [entry])
    state = _advance_to(state, seq)
    if state.torn:
        state = msgspec.structs.replace(state, text_sent=True, reasoning_sent=True)
    return frames[place + 1 :], state


def _advance_to(state: MiniCodexStreamState, seq: int) -> MiniCodexStreamState:
    """The state after `seq` when there is nothing left between."""
    if state.run_id is None or state.seq >= seq:
        return state
    # A run's first sign of life is a phase, as engines have it: no message has begun.
    is_phase = state.starting and state.seq + 1 == seq
    return msgspec.structs.replace(state, seq=seq, starting=False, torn=state.torn or not is_phase)
