"""What each session's clients hold, kept once for all of them: the story so far, its snapshot, and who was asked what.

Brought up to date from the journal when somebody asks, so that a client that comes back costs only what is new.
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator

from switchtower.core import codec, events, journal, tower
from switchtower.protocols.minicodex.plot import Story
from switchtower.protocols.minicodex.snapshot import Snapshot
from switchtower.protocols.minicodex.story import tell
from switchtower.transports.packet import Packet

PAGE = 1_000
MOST_BOOKS = 64
ENCODING = "minicodex"


class Book:
    """One session, read up to `seq`."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.seq = 0
        self.snapshot = Snapshot(session_id)
        self._asked: dict[str, str] = {}
        """The questions that are open: approval id to call id."""
        self.closed: dict[str, str] = {}
        """Calls whose question is not open any more, with what became of it."""
        self._marks: list[tuple[int, Story]] = [(0, Story.empty())]
        """The story at places along the way, so that who comes back in the middle need not read from the beginning."""

    def add(self, entries: list[journal.Entry]) -> None:
        self.snapshot.add(entries)
        for entry in entries:
            if entry.kind in _QUESTIONS:
                self._note(codec.decode(entry.kind, entry.data))
        self.seq = entries[-1].seq
        if self.seq - self._marks[-1][0] >= PAGE:
            self._marks.append((self.seq, self.story))

    def mark_before(self, seq: int) -> tuple[int, Story]:
        """The last place up to this seq at which the story is known."""
        return self._marks[bisect_right(self._marks, seq, key=lambda mark: mark[0]) - 1]

    @property
    def story(self) -> Story:
        """The state of a client that has been told everything in it."""
        return self.snapshot.story

    def _note(self, event: events.AnyEvent) -> None:
        match event:
            case events.ApprovalRequested():
                self._asked[event.approval.id] = event.approval.call_id
                self.closed.pop(event.approval.call_id, None)
            case events.ApprovalDecided():
                self._close(event.approval_id, f"was decided already, by {event.by.label}")
            case events.ApprovalExpired():
                self._close(event.approval_id, "expired before a decision")
            case events.ApprovalWithdrawn():
                self._close(event.approval_id, f"was withdrawn before a decision: {event.reason}")
            case _:
                pass

    def _close(self, approval_id: str, how: str) -> None:
        if (call_id := self._asked.pop(approval_id, None)) is not None:
            self.closed[call_id] = how


_QUESTIONS = frozenset(
    event.kind for event in (events.ApprovalRequested, events.ApprovalDecided, events.ApprovalExpired, events.ApprovalWithdrawn)
)


class Library:
    def __init__(self, tower_: tower.Tower) -> None:
        self.tower = tower_
        self._books: OrderedDict[str, Book] = OrderedDict()

    async def book(self, session_id: str, until: int) -> Book:
        """The session up to exactly this seq. Not to be changed."""
        book = await self._shared(session_id, until)
        if book.seq > until:
            # A client that is behind the others reads for itself; the shared book stays where it is.
            book = Book(session_id)
            await self._read(book, until)
        return book

    async def story_at(self, session_id: str, seq: int) -> Story:
        """The state of a client that has been told everything up to this seq."""
        book = await self._shared(session_id, seq)
        place, state = book.mark_before(seq)
        async for entries in self.pages(session_id, place, seq):
            _, state = tell(state, session_id, entries)
        return state

    async def _shared(self, session_id: str, until: int) -> Book:
        """The session up to this seq or further."""
        book = self._books.get(session_id)
        if book is None:
            book = self._books[session_id] = Book(session_id)
            if len(self._books) > MOST_BOOKS:
                self._books.popitem(last=False)
        self._books.move_to_end(session_id)
        await self._read(book, until)
        return book

    async def _read(self, book: Book, until: int) -> None:
        while book.seq < until:
            entries = await self.tower.entries(book.session_id, book.seq, PAGE)
            # Somebody else may have read on in the same book meanwhile.
            fresh = [entry for entry in entries if book.seq < entry.seq <= until]
            if fresh:
                book.add(fresh)
                if book.seq < until:
                    await asyncio.sleep(0)  # one page a turn: a long session holds up nobody
            elif not entries or entries[-1].seq > until:
                return  # retention has removed what lay there

    async def pages(self, session_id: str, after: int, until: int) -> AsyncIterator[list[journal.Entry]]:
        """What the journal still has between these two."""
        while after < until and (entries := await self.tower.entries(session_id, after, PAGE)):
            if kept := [entry for entry in entries if entry.seq <= until]:
                yield kept
            after = entries[-1].seq

    def told(self, state: Story, batch: tower.Batch) -> tuple[Packet | None, Story]:
        """What a batch is for a client in this state. Made once for all who are in the same one."""
        made = batch.encodings.get(ENCODING)
        if made is not None and (made[0] is state or made[0] == state):
            return made[1], made[2]
        frames, after = tell(state, batch.session_id, batch.entries)
        packet = Packet(frames) if frames else None
        if made is None:
            batch.encodings[ENCODING] = (state, packet, after)
        return packet, after
