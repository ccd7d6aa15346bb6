"""What the hub does not have yet. The journal is the spool: here is only how far each session is told, and whose turn it is.

What happens is sent as it happens, when nothing of its session is missing before it and the hub takes more. Everything else is
read from the journal, a page of each session in turn. A session that the hub has all of is not kept here.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from switchtower.core import errors, journal, tower
from switchtower.core.session import Session
from switchtower.protocols.relay import frame_limits, names
from switchtower.protocols.relay.link.ledger import Ledger
from switchtower.protocols.relay.link.strand import Strand
from switchtower.protocols.relay.outbound import About

log = logging.getLogger(__name__)

PAGE = 500
QUIET_MS = 1_000
"""How long nothing has happened in a session before it is put down as settled. More than a millisecond: what happens later must
have a later time, or the next start would not see it."""
REPEATS_S = 1.0
"""How often at most one session is begun again because the hub asks for it."""
_FIRST_CARDS = 1_000


class Line(Protocol):
    """The way to the hub, while there is one."""

    @property
    def ready(self) -> bool: ...

    def send(self, frames: list[bytes]) -> None: ...


class Spool:
    def __init__(
        self,
        tower_: tower.Tower,
        ledger: Ledger,
        host_id: str,
        *,
        window: int,
        lanes: int,
        max_frame_bytes: int = frame_limits.DEFAULT_BYTES,
    ) -> None:
        self._tower = tower_
        self._longest_event = min(max_frame_bytes, frame_limits.LONGEST_EVENT)
        self._ledger = ledger
        self._host_id = host_id
        self._window = max(1, window)
        self._worth_a_page = min(PAGE, max(1, self._window // 8))
        self._lanes = max(1, lanes)
        self._strands: dict[str, Strand] = {}
        self._fresh: deque[Strand] = deque()
        self._backlog: deque[Strand] = deque()
        self._favours_fresh = True
        self._tired: dict[str, Strand] = {}
        """Could not be read just now."""
        self._pages: set[asyncio.Task[None]] = set()
        self._line: Line | None = None
        self._in_flight = 0
        self._reserved = 0
        """Room in the window for pages that are being read."""
        self._complaints: set[str] = set()
        self._is_loaded = False
        self._unwatch = tower_.watch_batches(self._saw, at_home=True)

    async def load(self, started_at_ms: int | None = None) -> None:
        """What is left from before. Until then nothing is known, and nothing is sent. A hub that is new gets what has happened
        since `started_at_ms`, because a session may begin and end before this is loaded."""
        since_ms = await self._ledger.load(self._tower.now_ms() if started_at_ms is None else started_at_ms)
        cards, limit = await self._tower.cards(_FIRST_CARDS), _FIRST_CARDS
        while len(cards) == limit and cards[-1].updated_at_ms >= since_ms:
            limit *= 4
            cards = await self._tower.cards(limit)
        for card in cards:
            if card.host is None and card.updated_at_ms >= since_ms and card.session_id not in self._strands:
                self._recall(card)
        for strand in self._strands.values():
            strand.acked = self._ledger.acked(strand.session_id) or 0
            strand.highest = strand.told = strand.cursor = strand.acked
            strand.more = True
        self._is_loaded = True

    def _recall(self, card: journal.Card) -> None:
        # A session that only streams is not put on its card each time, so one with a run is looked at anyway.
        is_idle = card.active_run_id is None and not card.shells
        if not (is_idle and self._ledger.is_settled(card.session_id, card.updated_at_ms)):
            about = About.card(card, self._host_id)
            self._strands[card.session_id] = Strand(card.session_id, 0, about, card.updated_at_ms)

    async def close(self) -> None:
        self._unwatch()
        self.disconnected()
        for page in self._pages:
            page.cancel()
        await asyncio.gather(*self._pages, return_exceptions=True)
        if self._is_loaded:
            self._put_down_settled(quiet_ms=1)

    # How it stands

    @property
    def backlog(self) -> int:
        return sum(not strand.is_settled for strand in self._strands.values())

    @property
    def unacknowledged(self) -> int:
        return self._in_flight

    def unsettled(self) -> dict[str, int] | None:
        """The first number that the hub does not have, of each session of which it does not have all. None: not known yet."""
        if not self._is_loaded:
            return None
        return {session_id: strand.acked + 1 for session_id, strand in self._strands.items() if not strand.is_settled}

    # The line

    def connected(self, line: Line) -> None:
        assert self._line is None, "one line at a time"
        assert self._is_loaded, "what was acknowledged is known before anything is sent"
        self._line = line
        for strand in self._strands.values():
            self._put_in_line(strand)
        self.pump()

    def disconnected(self) -> None:
        """What was under way counts as not sent."""
        self._line = None
        self._fresh.clear()
        self._backlog.clear()
        self._tired.clear()
        self._in_flight = 0
        for strand in self._strands.values():
            strand.queued = strand.fresh = False
            if strand.in_flight:
                strand.rewind()
            else:
                strand.turn += 1
                strand.asked_again = 0

    # What happens here

    def _saw(self, session: Session, batch: tower.Batch) -> None:
        if session.host is not None:
            return  # a hub's mirror of what another host tells
        strand = self._strands.get(batch.session_id)
        if strand is None:
            acked = self._ledger.acked(batch.session_id) or 0
            strand = self._strands[batch.session_id] = Strand(batch.session_id, acked)
            strand.more = False
        strand.about = About.session(session, self._host_id)
        if strand.is_told and batch.first_seq == strand.cursor + 1 and self._line is not None and self._line.ready:
            allowed = self._allowed(strand)
            if allowed > 0:
                self._send(strand, batch.entries, allowed)
                if strand.cursor == batch.last_seq:
                    return
        if batch.last_seq > strand.cursor:
            strand.more = True
            self._put_in_line(strand, fresh=True)
            self.pump()

    # Turns

    def _allowed(self, strand: Strand) -> int:
        """Of the free room a session may take as much as it leaves: some that are never acknowledged do not stop the others."""
        room = self._window - self._in_flight - self._reserved
        return max(0, (room - len(strand.in_flight) + 1) // 2)

    def _put_in_line(self, strand: Strand, *, fresh: bool = False) -> None:
        if self._line is None or strand.busy or not strand.more:
            strand.fresh = strand.fresh or (fresh and strand.busy)
            return
        if strand.queued and (strand.fresh or not fresh):
            return
        # One that waited in the other line is skipped there when its time comes.
        strand.queued, strand.fresh = True, fresh
        (self._fresh if fresh else self._backlog).append(strand)

    def pump(self, *, at_any_rate: bool = False) -> None:
        """Reads on, as far as the hub takes it. `at_any_rate`: even if there is room for a few only."""
        while (
            self._line is not None
            and self._line.ready
            and len(self._pages) < self._lanes
            and (room := self._window - self._in_flight - self._reserved) > 0
            and (strand := self._next(fresh_only=room < 2 * self._worth_a_page - 1 and not at_any_rate)) is not None
        ):
            allowed = self._allowed(strand)
            if strand.in_flight and allowed < self._worth_a_page:
                continue  # its own acknowledgements put it in line again
            most = min(PAGE, allowed)
            self._reserved += most
            strand.busy, strand.more = True, False
            page = asyncio.get_running_loop().create_task(self._page(strand, self._line, most))
            self._pages.add(page)
            page.add_done_callback(self._pages.discard)

    def _next(self, *, fresh_only: bool) -> Strand | None:
        """Those in which something happens, and the others, in turns."""
        while self._fresh or (self._backlog and not fresh_only):
            self._favours_fresh = not self._favours_fresh
            fresh_first = self._fresh and (fresh_only or self._favours_fresh or not self._backlog)
            strand = (self._fresh if fresh_first else self._backlog).popleft()
            if strand.queued and strand.more:
                strand.queued = False
                return strand
        return None

    async def _page(self, strand: Strand, line: Line, most: int) -> None:
        own = asyncio.current_task()
        assert own is not None, "a page is a task"
        turn, was_fresh = strand.turn, strand.fresh
        strand.fresh = False
        entries: Sequence[journal.Entry] | None = None
        try:
            if await self._knows(strand):
                entries = await self._tower.entries(strand.session_id, strand.cursor, most)
        except errors.CoreError as problem:
            self._trouble(strand, f"a page of {strand.session_id} could not be read: {problem}")
        except Exception as bug:
            self._trouble(strand, f"a page of {strand.session_id} could not be read", bug)
        except asyncio.CancelledError:
            strand.more = True
            raise
        finally:
            self._reserved -= most
            strand.busy = False
        if line is not self._line or turn != strand.turn:
            strand.more = True
        elif entries:
            strand.more = True
            self._send(strand, entries, most)
        self._pages.discard(own)
        if strand.session_id not in self._tired:
            self._put_in_line(strand, fresh=was_fresh or strand.fresh)
        self.pump()

    async def _knows(self, strand: Strand) -> bool:
        if strand.about is None:
            card = await self._tower.card(strand.session_id)
            if card is None or card.host is not None:
                self._strands.pop(strand.session_id, None)
                return False
            strand.about = strand.about or About.card(card, self._host_id)
        return True

    def _send(self, strand: Strand, entries: Sequence[journal.Entry], most: int) -> None:
        assert self._line is not None, "who sends is connected"
        before = len(strand.in_flight)
        try:
            frames = strand.frames(entries, most, self._longest_event)
        except Exception as bug:
            # Half of it is worth nothing. Others go on, and this one is tried again.
            self._in_flight -= before
            strand.rewind()
            self._trouble(strand, f"what happened in {strand.session_id} after {strand.cursor} cannot be told", bug)
            return
        if frames:
            self._in_flight += len(frames)
            self._line.send(frames)

    def _trouble(self, strand: Strand, problem: str, bug: BaseException | None = None) -> None:
        strand.more = True
        self._tired[strand.session_id] = strand
        self._complain(f"trouble with {strand.session_id}", problem, bug)

    # What the hub says

    def acknowledged(self, run_id: str, last_seq: int) -> None:
        try:
            session_id = names.session_of(run_id)
        except names.BadId:
            session_id = ""
        strand = self._strands.get(session_id)
        if strand is None:
            strand = self._reopened(session_id, last_seq)
        elif last_seq > strand.highest:
            # It may remember what we forgot in a crash. What it was sent since then it has, at any rate; the rest does not count.
            self._complain("beyond", "the hub acknowledges more than it was told; only what it was told counts")
            if strand.in_flight:
                self._in_flight -= strand.settle_up_to(strand.told)
                self._ledger.note(session_id, strand.acked)
        elif last_seq > strand.acked:
            self._in_flight -= strand.settle_up_to(last_seq)
            self._ledger.note(session_id, last_seq)
        elif last_seq < strand.acked:
            self._complain("less", "the hub has less than it had acknowledged; it is told again")
            strand.acked = last_seq
            self._ledger.note(session_id, last_seq)
            if asyncio.get_running_loop().time() - strand.rewound_at >= REPEATS_S:
                self._rewind(strand)
            else:
                strand.asked_again = 2
        elif strand.in_flight and not strand.asked_again:
            strand.asked_again = 1
        if strand is not None:
            self._put_in_line(strand)
            self.pump()

    def _reopened(self, session_id: str, last_seq: int) -> Strand | None:
        """A session that was settled, unless the hub takes that back."""
        acked = self._ledger.acked(session_id)
        if acked is None:
            self._complain("unknown", "the hub acknowledges a run that it was not told of")
        elif last_seq > acked:
            self._complain("beyond", "the hub acknowledges more than it was told; only what it was told counts")
        elif last_seq < acked:
            self._complain("less", "the hub has less than it had acknowledged; it is told again")
            strand = self._strands[session_id] = Strand(session_id, last_seq)
            strand.highest = acked
            strand.rewound_at = asyncio.get_running_loop().time()
            self._ledger.note(session_id, last_seq)
            return strand
        return None

    def _rewind(self, strand: Strand) -> None:
        strand.rewound_at = asyncio.get_running_loop().time()
        self._in_flight -= strand.rewind()

    def _complain(self, kind: str, problem: str, bug: BaseException | None = None) -> None:
        """Once: who does it will do it again."""
        if kind not in self._complaints and len(self._complaints) < 1_000:
            self._complaints.add(kind)
            log.warning(problem, exc_info=bug)

    # Now and then

    def tick(self) -> None:
        """About once a second."""
        self._put_down_settled(QUIET_MS)
        for strand in self._strands.values():
            if strand.asked_again > 1:
                self._rewind(strand)
            elif strand.asked_again and strand.in_flight:
                strand.asked_again = 2  # it repeats itself: if nothing moves until the next time, something got lost there
        tired, self._tired = self._tired, {}
        for strand in (*tired.values(), *(strand for strand in self._strands.values() if strand.more)):
            self._put_in_line(strand)
        self.pump(at_any_rate=True)

    def _put_down_settled(self, quiet_ms: int) -> None:
        before_ms = self._tower.now_ms() - quiet_ms
        settled = [strand for strand in self._strands.values() if strand.is_settled and strand.last_ms <= before_ms]
        for strand in settled:
            self._ledger.note(strand.session_id, strand.acked, strand.last_ms)
            del self._strands[strand.session_id]
