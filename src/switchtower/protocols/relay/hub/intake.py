"""What comes in from one host, made whole: nothing twice, nothing out of order, and a missing piece is waited for. Pure.

A host numbers what it tells of a run. Ours says with each message which one came before (`prev_seq`); others number without
holes. When one is missing, what is behind it is held back for a while: a host may send what is new before what it had
spooled, and an acknowledgement across the hole would make it forget what never arrived.
"""

from switchtower.protocols.relay import messages

MAX_HELD = 2_000


class ReorderBuffer:
    """One run's messages. `taken` is the last number that was let through."""

    def __init__(self, last_seq: int) -> None:
        self.last_seq = last_seq
        self._held: dict[int, messages.Envelope] = {}

    @property
    def has_gap(self) -> bool:
        """Something is missing."""
        return bool(self._held)

    @property
    def is_full(self) -> bool:
        return len(self._held) >= MAX_HELD

    def __contains__(self, seq: int) -> bool:
        """Whether it is held back already."""
        return seq in self._held

    def __len__(self) -> int:
        return len(self._held)

    def add(self, envelope: messages.Envelope) -> list[messages.Envelope]:
        """What can be stored now, in order. Nothing, for what was told before or has to wait."""
        seq = envelope.seq
        assert seq is not None, "only what is numbered comes here"
        if seq <= self.last_seq:
            return []
        self._held[seq] = envelope
        return self._take_contiguous() if seq == min(self._held) else []

    def skip_gap(self) -> list[messages.Envelope]:
        """What is missing will not come: what was held back goes on without it, up to the next hole."""
        if not self._held:
            return []
        first = min(self._held)
        self.last_seq = first
        return [self._held.pop(first), *self._take_contiguous()]

    def _take_contiguous(self) -> list[messages.Envelope]:
        ready: list[messages.Envelope] = []
        for seq in sorted(self._held):
            envelope = self._held[seq]
            before = seq - 1 if envelope.prev_seq is None else envelope.prev_seq
            if before > self.last_seq:
                break
            del self._held[seq]
            self.last_seq = seq
            ready.append(envelope)
        return ready
