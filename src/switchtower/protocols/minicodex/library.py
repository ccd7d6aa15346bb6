"""What each session's clients hold, kept once for all of them: the story so far, its snapshot, and who was asked what.

Brought up to date from the journal when somebody asks, so that a client that comes back costs only what is new.
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator

from switchtower.core import codec, events, journal, tower
from switchtower.protocols.minicodex.plot import MiniCodexStreamState
from switchtower.protocols.minicodex.snapshot import TranscriptSnapshot
from switchtower.protocols.minicodex.story import encode_batch
from switchtower.transports.packet import Packet

PAGE_SIZE = 1_000
MAX_VIEWS = 64
ENCODING = "minicodex"


class SessionView:
    """One session, read up to `seq`."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.seq = 0
        self.snapshot = TranscriptSnapshot(session_id)
        self._open_approvals: dict[str, str] = {}
        """The questions that are open: approval id to call id."""
        self.closed: dict[str, str] = {}
        """Calls whose question is not open any more, with what became of it."""
        self._marks: list[tuple[int, MiniCodexStreamState]] = [(0, MiniCodexStreamState.make_empty())]
        """The story at places along the way, so that who comes back in the middle need not read from the beginning."""

    def add(self, entries: list[journal.Entry]) -> None:
        self.snapshot.add(entries)
        for entry in entries:
            if entry.kind in _APPROVAL_KINDS:
                self._track_approval(codec.decode(entry.kind, entry.data))
        self.seq = entries[-1].seq
        if self.seq - self._marks[-1][0] >= PAGE_SIZE:
            self._marks.append((self.seq, self.stream_state))

    def find_mark(self, seq: int) -> tuple[int, MiniCodexStreamState]:
        """The last place up to this seq at which the story is known."""
        return self._marks[bisect_right(self._marks, seq, key=lambda mark: mark[0]) - 1]

    @property
    def stream_state(self) -> MiniCodexStreamState:
        """The state of a client that has been told everything in it."""
        return self.snapshot.stream_state

    def _track_approval(self, event: events.AnyEvent) -> None:
        match event:
            case events.ApprovalRequested():
                self._open_approvals[event.approval.id] = event.approval.call_id
                self.closed.pop(event.approval.call_id, None)
            case events.ApprovalDecided():
                self._close_approval(event.approval_id, f"was decided already, by {event.by.label}")
            case events.ApprovalExpired():
                self._close_approval(event.approval_id, "expired before a decision")
            case events.ApprovalWithdrawn():
                self._close_approval(event.approval_id, f"was withdrawn before a decision: {event.reason}")
            case _:
                pass

    def _close_approval(self, approval_id: str, how: str) -> None:
        if (call_id := self._open_approvals.pop(approval_id, None)) is not None:
            self.closed[call_id] = how


_APPROVAL_KINDS = frozenset(
    event.kind for event in (events.ApprovalRequested, events.ApprovalDecided, events.ApprovalExpired, events.ApprovalWithdrawn)
)


class SessionViewCache:
    def __init__(self, tower_: tower.SessionService) -> None:
        self.tower = tower_
        self._views: OrderedDict[str, SessionView] = OrderedDict()

    async def get_view(self, session_id: str, until: int) -> SessionView:
        """The session up to exactly this seq. Not to be changed."""
        book = await self._get_shared_view(session_id, until)
        if book.seq > until:
            # A client that is behind the others reads for itself; the shared book stays where it is.
            book = SessionView(session_id)
            await self._read(book, until)
        return book

    async def get_stream_state(self, session_id: str, seq: int) -> MiniCodexStreamState:
        """The state of a client that has been told everything up to this seq."""
        book = await self._get_shared_view(session_id, seq)
        place, state = book.find_mark(seq)
        async for entries in self.read_pages(session_id, place, seq):
            _, state = encode_batch(state, session_id, entries)
        return state

    async def _get_shared_view(self, session_id: str, until: int) -> SessionView:
        """The session up to this seq or further."""
        book = self._views.get(session_id)
        if book is None:
            book = self._views[session_id] = SessionView(session_id)
            if len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
        self._views.move_to_end(session_id)
        await self._read(book, until)
        return book

    async def _read(self, view: SessionView, until: int) -> None:
        while view.seq < until:
            entries = await self.tower.read_entries(view.session_id, view.seq, PAGE_SIZE)
            # Somebody else may have read on in the same book meanwhile.
            fresh = [entry for entry in entries if view.seq < entry.seq <= until]
            if fresh:
                view.add(fresh)
                if view.seq < until:
                    await asyncio.sleep(0)  # one page a turn: a long session holds up nobody
            elif not entries or entries[-1].seq > until:
                return  # retention has removed what lay there

    async def read_pages(self, session_id: str, after: int, until: int) -> AsyncIterator[list[journal.Entry]]:
        """What the journal still has between these two."""
        while after < until and (entries := await self.tower.read_entries(session_id, after, PAGE_SIZE)):
            if kept := [entry for entry in entries if entry.seq <= until]:
                yield kept
            after = entries[-1].seq

    def encode_batch(self, state: MiniCodexStreamState, batch: tower.Batch) -> tuple[Packet | None, MiniCodexStreamState]:
        """What a batch is for a client in this state. Made once for all who are in the same one."""
        made = batch.encodings.get(ENCODING)
        if made is not None and (made[0] is state or made[0] == state):
            return made[1], made[2]
        frames, after = encode_batch(state, batch.session_id, batch.entries)
        packet = Packet(frames) if frames else None
        if made is None:
            batch.encodings[ENCODING] = (state, packet, after)
        return packet, after
