"""The events that the hub does not have yet. The journal is the spool: this module only holds how far each session has been sent,
and whose turn it is.

An event is sent as it happens, when nothing before it in its session is missing and the hub takes more. All others are read from
the journal, a page of each session in turn. A session that the hub has completely is not kept here.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from switchtower.core import errors
from switchtower.core.ports import journal, session_service
from switchtower.core.session import Session
from switchtower.protocols.relay import wire_values
from switchtower.protocols.relay.encoder import EnvelopeHeader
from switchtower.protocols.relay.link.delivery_state import AcknowledgementLog, DeliveryState

log = logging.getLogger(__name__)

PAGE_SIZE = 500
QUIET_MS = 1_000
"""Milliseconds without an event before a session is recorded as settled. It is more than one millisecond: a later event must have
a later time, or the next start would not notice it."""
MIN_REWIND_INTERVAL_S = 1.0
"""The shortest time, in seconds, between two rewinds of one session that the hub causes."""
_FIRST_CARDS = 1_000


class SpoolChannel(Protocol):
    """The channel to the hub, while it is connected."""

    @property
    def is_ready(self) -> bool: ...

    def send(self, frames: list[bytes]) -> None: ...


class Spool:
    def __init__(
        self,
        tower_: session_service.SessionService,
        acknowledgements: AcknowledgementLog,
        host_id: str,
        *,
        window: int,
        lanes: int,
        max_frame_bytes: int = wire_values.DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        self._tower = tower_
        self._max_event_bytes = min(max_frame_bytes, wire_values.MAX_EVENT_BYTES)
        self._acknowledgements = acknowledgements
        self._host_id = host_id
        self._window = max(1, window)
        self._min_page_size = min(PAGE_SIZE, max(1, self._window // 8))
        self._lanes = max(1, lanes)
        self._deliveries: dict[str, DeliveryState] = {}
        self._fresh: deque[DeliveryState] = deque()
        self._backlog: deque[DeliveryState] = deque()
        self._prefers_fresh = True
        self._failed: dict[str, DeliveryState] = {}
        """Sessions that could not be read in this round."""
        self._pages: set[asyncio.Task[None]] = set()
        self._channel: SpoolChannel | None = None
        self._in_flight = 0
        self._reserved = 0
        """The part of the window reserved for pages that are being read."""
        self._logged: set[str] = set()
        self._is_loaded = False
        self._unwatch = tower_.watch_batches(self._on_batch, owned_only=True)

    async def load(self, started_at_ms: int | None = None) -> None:
        """Loads the state of the previous process. Until then nothing is known, and nothing is sent. A new hub gets the events
        since `started_at_ms`, because a session may start and end before this is loaded."""
        since_ms = await self._acknowledgements.load(self._tower.now_ms() if started_at_ms is None else started_at_ms)
        cards, limit = await self._tower.list_cards(_FIRST_CARDS), _FIRST_CARDS
        while len(cards) == limit and cards[-1].updated_at_ms >= since_ms:
            limit *= 4
            cards = await self._tower.list_cards(limit)
        for card in cards:
            if card.host is None and card.updated_at_ms >= since_ms and card.session_id not in self._deliveries:
                self._restore_session(card)
        for strand in self._deliveries.values():
            strand.acked = self._acknowledgements.get_acknowledged_seq(strand.session_id) or 0
            strand.highest = strand.sent = strand.cursor = strand.acked
            strand.more = True
        self._is_loaded = True

    def _restore_session(self, card: journal.Card) -> None:
        # Streaming alone does not update a session's card, so a session with a run is always read.
        is_idle = card.active_run_id is None and not card.shells
        if not (is_idle and self._acknowledgements.is_settled(card.session_id, card.updated_at_ms)):
            about = EnvelopeHeader.from_card(card, self._host_id)
            self._deliveries[card.session_id] = DeliveryState(card.session_id, 0, about, card.updated_at_ms)

    async def close(self) -> None:
        self._unwatch()
        self.on_disconnected()
        for page in self._pages:
            page.cancel()
        await asyncio.gather(*self._pages, return_exceptions=True)
        if self._is_loaded:
            self._forget_settled(quiet_ms=1)

    # Status

    @property
    def backlog(self) -> int:
        return sum(not strand.is_settled for strand in self._deliveries.values())

    @property
    def unacknowledged_count(self) -> int:
        return self._in_flight

    def list_unsettled(self) -> dict[str, int] | None:
        """Returns the first number that the hub does not have, for each unsettled session. None: not known yet."""
        if not self._is_loaded:
            return None
        return {session_id: strand.acked + 1 for session_id, strand in self._deliveries.items() if not strand.is_settled}

    # The channel

    def on_connected(self, line: SpoolChannel) -> None:
        assert self._channel is None, "one line at a time"
        assert self._is_loaded, "what was acknowledged is known before anything is sent"
        self._channel = line
        for strand in self._deliveries.values():
            self._enqueue(strand)
        self.pump()

    def on_disconnected(self) -> None:
        """Messages in flight count as not sent."""
        self._channel = None
        self._fresh.clear()
        self._backlog.clear()
        self._failed.clear()
        self._in_flight = 0
        for strand in self._deliveries.values():
            strand.queued = strand.fresh = False
            if strand.in_flight:
                strand.rewind()
            else:
                strand.turn += 1
                strand.repeats = 0

    # Local events

    def _on_batch(self, session: Session, batch: session_service.Batch) -> None:
        if session.host is not None:
            return  # a hub's mirror of another host's session
        strand = self._deliveries.get(batch.session_id)
        if strand is None:
            acked = self._acknowledgements.get_acknowledged_seq(batch.session_id) or 0
            strand = self._deliveries[batch.session_id] = DeliveryState(batch.session_id, acked)
            strand.more = False
        strand.about = EnvelopeHeader.from_session(session, self._host_id)
        if strand.is_sent and batch.first_seq == strand.cursor + 1 and self._channel is not None and self._channel.is_ready:
            allowed = self._compute_allowance(strand)
            if allowed > 0:
                self._send(strand, batch.entries, allowed)
                if strand.cursor == batch.last_seq:
                    return
        if batch.last_seq > strand.cursor:
            strand.more = True
            self._enqueue(strand, fresh=True)
            self.pump()

    # Turns

    def _compute_allowance(self, delivery: DeliveryState) -> int:
        """A session may take as much of the free window as it leaves free: some that are never acknowledged do not block the
        others."""
        room = self._window - self._in_flight - self._reserved
        return max(0, (room - len(delivery.in_flight) + 1) // 2)

    def _enqueue(self, delivery: DeliveryState, *, fresh: bool = False) -> None:
        if self._channel is None or delivery.busy or not delivery.more:
            delivery.fresh = delivery.fresh or (fresh and delivery.busy)
            return
        if delivery.queued and (delivery.fresh or not fresh):
            return
        # A session that waited in the other queue is skipped there when its turn comes.
        delivery.queued, delivery.fresh = True, fresh
        (self._fresh if fresh else self._backlog).append(delivery)

    def pump(self, *, even_if_few: bool = False) -> None:
        """Reads further pages, as far as the hub takes them. `even_if_few`: even if only a few messages fit into the window."""
        while (
            self._channel is not None
            and self._channel.is_ready
            and len(self._pages) < self._lanes
            and (room := self._window - self._in_flight - self._reserved) > 0
            and (strand := self._take_next(fresh_only=room < 2 * self._min_page_size - 1 and not even_if_few)) is not None
        ):
            allowed = self._compute_allowance(strand)
            if strand.in_flight and allowed < self._min_page_size:
                continue  # its own acknowledgements put it in the queue again
            most = min(PAGE_SIZE, allowed)
            self._reserved += most
            strand.busy, strand.more = True, False
            page = asyncio.get_running_loop().create_task(self._send_page(strand, self._channel, most))
            self._pages.add(page)
            page.add_done_callback(self._pages.discard)

    def _take_next(self, *, fresh_only: bool) -> DeliveryState | None:
        """Takes sessions with new events and the others in turns."""
        while self._fresh or (self._backlog and not fresh_only):
            self._prefers_fresh = not self._prefers_fresh
            fresh_first = self._fresh and (fresh_only or self._prefers_fresh or not self._backlog)
            strand = (self._fresh if fresh_first else self._backlog).popleft()
            if strand.queued and strand.more:
                strand.queued = False
                return strand
        return None

    async def _send_page(self, delivery: DeliveryState, line: SpoolChannel, limit: int) -> None:
        own = asyncio.current_task()
        assert own is not None, "a page is a task"
        turn, was_fresh = delivery.turn, delivery.fresh
        delivery.fresh = False
        entries: Sequence[journal.Entry] | None = None
        try:
            if await self._ensure_header(delivery):
                entries = await self._tower.read_entries(delivery.session_id, delivery.cursor, limit)
        except errors.CoreError as problem:
            self._on_problem(delivery, f"a page of {delivery.session_id} could not be read: {problem}")
        except Exception as bug:
            self._on_problem(delivery, f"a page of {delivery.session_id} could not be read", bug)
        except asyncio.CancelledError:
            delivery.more = True
            raise
        finally:
            self._reserved -= limit
            delivery.busy = False
        if line is not self._channel or turn != delivery.turn:
            delivery.more = True
        elif entries:
            delivery.more = True
            self._send(delivery, entries, limit)
        self._pages.discard(own)
        if delivery.session_id not in self._failed:
            self._enqueue(delivery, fresh=was_fresh or delivery.fresh)
        self.pump()

    async def _ensure_header(self, delivery: DeliveryState) -> bool:
        if delivery.about is None:
            card = await self._tower.find_card(delivery.session_id)
            if card is None or card.host is not None:
                self._deliveries.pop(delivery.session_id, None)
                return False
            delivery.about = delivery.about or EnvelopeHeader.from_card(card, self._host_id)
        return True

    def _send(self, delivery: DeliveryState, entries: Sequence[journal.Entry], limit: int) -> None:
        assert self._channel is not None, "who sends is connected"
        before = len(delivery.in_flight)
        try:
            frames = delivery.encode_next(entries, limit, self._max_event_bytes)
        except Exception as bug:
            # Half a page is void. Other sessions continue, and this one is retried.
            self._in_flight -= before
            delivery.rewind()
            self._on_problem(delivery, f"what happened in {delivery.session_id} after {delivery.cursor} cannot be told", bug)
            return
        if frames:
            self._in_flight += len(frames)
            self._channel.send(frames)

    def _on_problem(self, delivery: DeliveryState, problem: str, error: BaseException | None = None) -> None:
        delivery.more = True
        self._failed[delivery.session_id] = delivery
        self._log_once(f"trouble with {delivery.session_id}", problem, error)

    # Acknowledgements

    def on_acknowledged(self, run_id: str, last_seq: int) -> None:
        try:
            session_id = wire_values.parse_run_id(run_id)
        except wire_values.InvalidRelayId:
            session_id = ""
        strand = self._deliveries.get(session_id)
        if strand is None:
            strand = self._reopen(session_id, last_seq)
        elif last_seq > strand.highest:
            # The hub may remember numbers that we lost in a crash. It has at least what it was sent since then; higher numbers do
            # not count.
            self._log_once("beyond", "the hub acknowledges more than it was told; only what it was told counts")
            if strand.in_flight:
                self._in_flight -= strand.acknowledge(strand.sent)
                self._acknowledgements.record(session_id, strand.acked)
        elif last_seq > strand.acked:
            self._in_flight -= strand.acknowledge(last_seq)
            self._acknowledgements.record(session_id, last_seq)
        elif last_seq < strand.acked:
            self._log_once("less", "the hub has less than it had acknowledged; it is told again")
            strand.acked = last_seq
            self._acknowledgements.record(session_id, last_seq)
            if asyncio.get_running_loop().time() - strand.rewound_at >= MIN_REWIND_INTERVAL_S:
                self._rewind(strand)
            else:
                strand.repeats = 2
        elif strand.in_flight and not strand.repeats:
            strand.repeats = 1
        if strand is not None:
            self._enqueue(strand)
            self.pump()

    def _reopen(self, session_id: str, last_seq: int) -> DeliveryState | None:
        """Reopens a settled session when the hub has less than it had acknowledged."""
        acked = self._acknowledgements.get_acknowledged_seq(session_id)
        if acked is None:
            self._log_once("unknown", "the hub acknowledges a run that it was not told of")
        elif last_seq > acked:
            self._log_once("beyond", "the hub acknowledges more than it was told; only what it was told counts")
        elif last_seq < acked:
            self._log_once("less", "the hub has less than it had acknowledged; it is told again")
            strand = self._deliveries[session_id] = DeliveryState(session_id, last_seq)
            strand.highest = acked
            strand.rewound_at = asyncio.get_running_loop().time()
            self._acknowledgements.record(session_id, last_seq)
            return strand
        return None

    def _rewind(self, delivery: DeliveryState) -> None:
        delivery.rewound_at = asyncio.get_running_loop().time()
        self._in_flight -= delivery.rewind()

    def _log_once(self, kind: str, problem: str, error: BaseException | None = None) -> None:
        """Logs each kind of problem once: a peer that causes it will cause it again."""
        if kind not in self._logged and len(self._logged) < 1_000:
            self._logged.add(kind)
            log.warning(problem, exc_info=error)

    # Periodic tasks

    def run_periodic_tasks(self) -> None:
        """The link calls this about once a second."""
        self._forget_settled(QUIET_MS)
        for strand in self._deliveries.values():
            if strand.repeats > 1:
                self._rewind(strand)
            elif strand.repeats and strand.in_flight:
                strand.repeats = 2  # the hub repeats itself: if nothing moves until the next round, messages were lost
        tired, self._failed = self._failed, {}
        for strand in (*tired.values(), *(strand for strand in self._deliveries.values() if strand.more)):
            self._enqueue(strand)
        self.pump(even_if_few=True)

    def _forget_settled(self, quiet_ms: int) -> None:
        before_ms = self._tower.now_ms() - quiet_ms
        settled = [strand for strand in self._deliveries.values() if strand.is_settled and strand.last_ms <= before_ms]
        for strand in settled:
            self._acknowledgements.record(strand.session_id, strand.acked, strand.last_ms)
            del self._deliveries[strand.session_id]
