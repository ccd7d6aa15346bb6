"""The delivery of one session to the hub: what is acknowledged, what was sent, and where reading continues. Pure.

The acknowledgement log keeps the acknowledged numbers: in memory at once, in the registry in batches. Numbers that are lost in a
crash only cause messages to be sent again.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable

from switchtower.core.ports import journal, registry
from switchtower.protocols.relay import encoder, wire_values

_PREV_SEQ_BYTES = 40


class DeliveryState:
    """`acked` is a number that the hub has confirmed, `sent` the last that it was sent, `cursor` the last entry that was read:
    not every entry becomes a message."""

    __slots__ = (
        "about",
        "acked",
        "busy",
        "cursor",
        "fresh",
        "highest",
        "in_flight",
        "last_ms",
        "more",
        "queued",
        "repeats",
        "rewound_at",
        "sent",
        "session_id",
        "turn",
    )

    def __init__(self, session_id: str, acked: int, about: encoder.EnvelopeHeader | None = None, last_ms: int = 0) -> None:
        self.session_id = session_id
        self.about = about
        """None: it has to be looked up."""
        self.acked = self.sent = self.cursor = acked
        self.highest = acked
        """The highest number that was ever sent: an acknowledgement beyond it does not count."""
        self.in_flight: deque[int] = deque()
        """The messages that were sent on this connection and are not acknowledged."""
        self.last_ms = last_ms
        """The time of the last entry that was read."""
        self.queued = False
        """The session waits for its turn to be read from the journal."""
        self.fresh = False
        """The session has a new event."""
        self.busy = False
        """The session is being read from the journal."""
        self.more = True
        """The journal may have entries after `cursor`."""
        self.turn = 0
        """Counts how often `cursor` was set back: pages that were read before that are void."""
        self.repeats = 0
        """The number of consecutive rounds in which the hub had repeated itself."""
        self.rewound_at = -1.0

    @property
    def is_sent(self) -> bool:
        """The hub has been sent all messages."""
        return not (self.more or self.busy or self.queued)

    @property
    def is_settled(self) -> bool:
        """The hub has all messages."""
        return self.is_sent and not self.in_flight

    def encode_next(
        self, entries: Iterable[journal.Entry], limit: int, max_bytes: int = wire_values.MAX_EVENT_BYTES
    ) -> list[bytes]:
        """Returns the next messages, at most `limit`, each of at most `max_bytes`. The cursor moves to the last entry that was
        used."""
        about = self.about
        assert about is not None, "who is told of a session is told what it is"
        frames: list[bytes] = []
        for entry in entries:
            if entry.seq <= self.cursor:
                continue
            frame = encoder.encode_event(about, entry)
            if frame is not None and len(frame) > max_bytes - _PREV_SEQ_BYTES:
                frame = wire_values.shorten_event(frame, max_bytes - _PREV_SEQ_BYTES)
            if frame is not None:
                if len(frames) >= limit:
                    break
                # Our addition: with it the hub sees that nothing is missing, though some numbers are never sent.
                frames.append(b'%b,"prev_seq":%d}' % (frame[:-1], self.sent))
                self.sent = entry.seq
                self.in_flight.append(entry.seq)
            self.cursor = entry.seq
            self.last_ms = entry.ts_ms
        if self.sent > self.highest:
            self.highest = self.sent
        return frames

    def acknowledge(self, seq: int) -> int:
        """The hub has everything up to `seq`. Returns the number of messages that are no longer in flight."""
        in_flight, home = self.in_flight, 0
        while in_flight and in_flight[0] <= seq:
            in_flight.popleft()
            home += 1
        self.acked = seq
        self.repeats = 0
        if seq > self.sent:
            # It was sent on an earlier connection and arrived, and the acknowledgement was lost.
            self.sent = seq
            self.cursor = max(self.cursor, seq)
        return home

    def rewind(self) -> int:
        """Sets the cursor back to the last acknowledged number. Returns the number of messages that are no longer in flight."""
        lost = len(self.in_flight)
        self.in_flight.clear()
        self.sent = self.cursor = self.acked
        self.more = True
        self.turn += 1
        self.repeats = 0
        return lost


log = logging.getLogger(__name__)

MAX_UNWRITTEN = 1_000


class AcknowledgementLog:
    def __init__(self, registry_: registry.Registry, hub: str) -> None:
        self._registry = registry_
        self._hub = hub
        self._stored: dict[str, tuple[int, int]] = {}
        self._unwritten: dict[str, tuple[int, int]] = {}
        self._acks = 0
        self._failing = False
        self.is_due: Callable[[], None] = lambda: None
        """The log calls this when so much is unwritten that it should not wait for its time."""

    async def load(self, now_ms: int) -> int:
        """Returns the time since which there is a link to this hub."""
        since_ms = await self._registry.record_hub(self._hub, now_ms)
        self._stored = await self._registry.load_acknowledgements(self._hub)
        return since_ms

    def get_acknowledged_seq(self, session_id: str) -> int | None:
        """Returns None when the hub was never sent this session."""
        mark = self._stored.get(session_id)
        return None if mark is None else mark[0]

    def is_settled(self, session_id: str, updated_at_ms: int) -> bool:
        """Returns whether the hub has all of a session that was last updated at this time."""
        mark = self._stored.get(session_id)
        return mark is not None and 0 < updated_at_ms <= mark[1]

    def record(self, session_id: str, acked_seq: int, settled_at_ms: int = 0) -> None:
        mark = (acked_seq, settled_at_ms)
        if self._stored.get(session_id) == mark:
            return
        self._stored[session_id] = self._unwritten[session_id] = mark
        self._acks += 1
        if self._acks == MAX_UNWRITTEN:
            self.is_due()

    async def write(self) -> None:
        """Writes the changes; those that could not be written are kept for the next time."""
        unwritten, self._unwritten = self._unwritten, {}
        self._acks = 0
        if not unwritten:
            return
        try:
            await self._registry.store_acknowledgements(
                self._hub, [(session_id, *mark) for session_id, mark in unwritten.items()]
            )
        except BaseException as problem:
            self._unwritten = unwritten | self._unwritten
            if not isinstance(problem, registry.RegistryUnavailable):
                raise
            if not self._failing:
                log.warning("what the hub has acknowledged cannot be written down, and is kept until it can: %s", problem)
            self._failing = True
        else:
            self._failing = False
