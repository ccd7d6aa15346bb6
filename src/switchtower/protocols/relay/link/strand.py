"""One session on its way to the hub: what it has, what it was sent, and where to read on. Pure."""

from collections import deque
from collections.abc import Iterable

from switchtower.core import journal
from switchtower.protocols.relay import frame_limits, outbound

_PREV_SEQ_BYTES = 40


class Strand:
    """`acked` is a number that the hub has confirmed, `told` the last that it was sent, `cursor` the last that was looked at:
    not every entry becomes a message."""

    __slots__ = (
        "about",
        "acked",
        "asked_again",
        "busy",
        "cursor",
        "fresh",
        "highest",
        "in_flight",
        "last_ms",
        "more",
        "queued",
        "rewound_at",
        "session_id",
        "told",
        "turn",
    )

    def __init__(self, session_id: str, acked: int, about: outbound.About | None = None, last_ms: int = 0) -> None:
        self.session_id = session_id
        self.about = about
        """None: to be looked up."""
        self.acked = self.told = self.cursor = acked
        self.highest = acked
        """The highest number that was ever sent: an acknowledgement beyond it is no acknowledgement."""
        self.in_flight: deque[int] = deque()
        """What was sent on this connection and is not acknowledged."""
        self.last_ms = last_ms
        """When the last entry was written that was looked at."""
        self.queued = False
        """Waits for its turn to be read from the journal."""
        self.fresh = False
        """Something has just happened in it."""
        self.busy = False
        """Is being read from the journal."""
        self.more = True
        """The journal may have entries after `cursor`."""
        self.turn = 0
        """Counts the times that `cursor` was set back: what was read before that is worth nothing."""
        self.asked_again = 0
        """How often in a row a round found that the hub had repeated itself."""
        self.rewound_at = -1.0

    @property
    def is_told(self) -> bool:
        """The hub has been sent all there is."""
        return not (self.more or self.busy or self.queued)

    @property
    def is_settled(self) -> bool:
        """The hub has all there is."""
        return self.is_told and not self.in_flight

    def frames(self, entries: Iterable[journal.Entry], most: int, longest: int = frame_limits.LONGEST_EVENT) -> list[bytes]:
        """The next messages, at most so many, each of at most `longest` bytes. The cursor moves to the last entry that was
        used."""
        about = self.about
        assert about is not None, "who is told of a session is told what it is"
        frames: list[bytes] = []
        for entry in entries:
            if entry.seq <= self.cursor:
                continue
            frame = outbound.envelope(about, entry)
            if frame is not None and len(frame) > longest - _PREV_SEQ_BYTES:
                frame = frame_limits.shorten_event(frame, longest - _PREV_SEQ_BYTES)
            if frame is not None:
                if len(frames) >= most:
                    break
                # Ours: with it the hub sees that nothing is missing, though some numbers are never told.
                frames.append(b'%b,"prev_seq":%d}' % (frame[:-1], self.told))
                self.told = entry.seq
                self.in_flight.append(entry.seq)
            self.cursor = entry.seq
            self.last_ms = entry.ts_ms
        if self.told > self.highest:
            self.highest = self.told
        return frames

    def settle_up_to(self, seq: int) -> int:
        """The hub has everything up to there. How many messages that were on their way are thereby home."""
        in_flight, home = self.in_flight, 0
        while in_flight and in_flight[0] <= seq:
            in_flight.popleft()
            home += 1
        self.acked = seq
        self.asked_again = 0
        if seq > self.told:
            # Sent on an earlier connection, arrived, and the confirmation was lost.
            self.told = seq
            self.cursor = max(self.cursor, seq)
        return home

    def rewind(self) -> int:
        """Back to what is confirmed. How many messages count no longer as being on their way."""
        lost = len(self.in_flight)
        self.in_flight.clear()
        self.told = self.cursor = self.acked
        self.more = True
        self.turn += 1
        self.asked_again = 0
        return lost
