"""Journal entries to the frames that MiniCodex clients follow a session by. Pure: what must be remembered comes in and goes out.

Any way to cut the entries into batches gives the same frames. Clients whose state is the same object can share the frames of
a batch; after each run everybody's is.

What a model call had streamed before it failed is void, but the protocol cannot unsay anything. So `RetryScheduled` becomes an
`error` with the code `RETRY`, and the voided text stays in the transcript as it was told. A snapshot is folded from the same
frames, so it agrees.
"""

from collections.abc import Sequence

import msgspec

from switchtower.core import journal
from switchtower.protocols.minicodex.plot import Story
from switchtower.protocols.minicodex.stamps import LAST_PLACE, after, event_id, run_uuid
from switchtower.protocols.minicodex.telling import Teller

__all__ = ["LAST_PLACE", "Story", "after", "event_id", "run_uuid", "seen", "tell"]


def tell(state: Story, session_id: str, entries: Sequence[journal.Entry]) -> tuple[list[bytes], Story]:
    """The frames for these entries, and the state for the next ones."""
    teller = Teller(state, session_id)
    add = teller.add
    for entry in entries:
        add(entry)
    return teller.frames, teller.story()


def seen(state: Story, seq: int) -> Story:
    """The state of a client that has seen everything up to `seq`, also what retention has removed from the journal since.

    `state` is what came of the entries that are left. Whatever is missing were pieces and phases: with them the client was told
    that the run is running, and the message under way as far as it had come.
    """
    if state.run_id is None or (state.seq >= seq and not state.torn):
        return state
    if state.starting and state.seq + 1 == seq:
        # A run's first sign of life is a phase, as engines have it; no message has begun.
        return msgspec.structs.replace(state, seq=seq, starting=False)
    return msgspec.structs.replace(state, seq=max(seq, state.seq), starting=False, text_told=True, reasoning_told=True)
