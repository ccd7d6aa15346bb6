"""One lane's part in a tower of several nodes, while its session's home is elsewhere, or nowhere.

What is asked goes to the home (`away`). What is read is read from the journal, up to its end at that moment. Those who listen
here are told what other nodes store: notices say that something was, and the journal says what.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from switchtower.core import codec, errors, events, homes, journal, tower
from switchtower.core.session import Session, fold
from switchtower.runtime.homes.away import Ask, Away

if TYPE_CHECKING:
    from switchtower.runtime.lane import Item, Lane, Services

PAGE = 1_000
DELTAS = frozenset({events.TextDelta.kind, events.ThinkingDelta.kind, events.ToolProgressed.kind})
"""Pieces of streamed text: no reason for anything else to happen."""
ANSWER_FIRST = 1.0
"""Seconds that what another node has stored is held back for its answers that are on their way."""
ANOTHER = "another node"


class Afar:
    def __init__(self, lane: "Lane", services: "Services", homes_: homes.Homes) -> None:
        self._lane = lane
        self._services = services
        self._homes = homes_
        patience = services.limits.home_patience
        self.away = Away(lane.session_id, homes_, patience, self.come_home, self._is_there, lane.tell)
        self.away.settled = self._answers_are_in
        self._arriving: int | None = None
        """The epoch of a lease that was taken, while what was stored before it is still to be read."""
        self._lost: str | None = None
        """The machine that the session was on, when that is not this one."""
        self._moved = False
        """Another node has stored something that nobody here was told of."""
        self._shown: int | None = None
        """The last seq that those who watch everything have been told of, where that is known."""
        self._held_since: float | None = None
        self._reclaiming: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self.away.busy or self._reclaiming is not None

    async def _is_there(self) -> bool:
        return await self._services.journal.load(self._lane.session_id) is not None

    # Coming and leaving

    def come_home(self, epoch: int, asks: Sequence[Ask] = (), *, lost: str | None = ANOTHER) -> None:
        """This node has become the session's home. What waited for that goes first. `lost` is the machine that the session was
        on, when that is not this one."""
        if not self._lane.at_home:
            self._arriving = epoch
            self._lost = lost
        self._lane.put_first(asks)

    def leave_home(self) -> None:
        """Another node is the session's home, or nobody is: what is folded here may be more than what was stored."""
        self.away.forget()
        self._arriving = None
        lane, session = self._lane, self._lane.session
        if not lane.at_home:
            return
        lane.at_home = False
        self._lost = None
        self._shown = lane.feed.head
        lane.forget()
        self._services.left(lane)
        self.moved(self._shown)
        if lane.busy or session is None or session.run is not None or session.shells or session.errands:
            self.reclaim()

    def reclaim(self) -> None:
        """Something may be under way that was stopped here, was stored while the home was left, or could not be read. If the
        session turns out to be this node's, nobody else takes that up."""
        if self._reclaiming is None:
            self._reclaiming = asyncio.get_running_loop().create_task(self._find_out_whose_it_is())

    async def _find_out_whose_it_is(self) -> None:
        try:
            while not self._lane.at_home and self._arriving is None and not self._services.stopping():
                await asyncio.sleep(self._services.limits.journal_retry)
                try:
                    home = await self._homes.claim(self._lane.session_id)
                except errors.HomeUnreachable:
                    continue
                if isinstance(home, homes.Here):
                    self.come_home(home.epoch, lost=self._lost)
                return
        finally:
            self._reclaiming = None

    # Following

    @property
    def is_followed(self) -> bool:
        """Somebody here wants to hear what happens elsewhere."""
        return self._lane.feed.cursors > 0 or self._is_watched

    @property
    def _is_watched(self) -> bool:
        return bool(self._services.far_watchers or self._services.far_batch_watchers)

    def moved(self, before: int | None = None) -> None:
        """Another node has stored something, after this seq if that is known."""
        if self._lane.at_home or not self.is_followed:
            return
        if self._shown is None and self._lane.session is None:
            self._shown = before
        self._moved = True
        self._lane.wake()

    @property
    def has_work(self) -> bool:
        return self._arriving is not None or self._may_tell()

    def _may_tell(self) -> bool:
        """An asker hears the answer before what came of it; but the two come different ways, so the notice may be first."""
        if not self._moved:
            return False
        if not self.away.in_flight:
            return True
        loop = asyncio.get_running_loop()
        if self._held_since is None:
            self._held_since = loop.time()
            loop.call_later(ANSWER_FIRST, self._answers_are_in)
        return loop.time() - self._held_since >= ANSWER_FIRST

    def _answers_are_in(self) -> None:
        if self._moved:
            self._lane.wake()
        elif not self._lane.busy:
            self._services.idle(self._lane)

    # A turn of the lane

    async def arrive(self, items: "list[Item]") -> bool:
        """True: the home is here now, and the turn goes on there. Otherwise all of it is seen to."""
        if self._arriving is None:
            await self._turn_away(items)
            return False
        epoch, self._arriving = self._arriving, None
        try:
            session = await self._come_up_to_date(is_new=epoch == 1)
        except Exception as failure:
            self._lane.give_up(items, failure)
            self.reclaim()  # the lease is this node's, so nobody else takes up what is under way
            return False
        self._lane.settle_in(epoch)
        if session.host is None and (session.run is not None or session.shells or session.errands):
            # Whatever was under way has lost who worked on it. Nobody decides about it before it is taken up or closed.
            self._services.take_up(self._lane, self._lost)
        return True

    async def _turn_away(self, items: "list[Item]") -> None:
        lane = self._lane
        reads: list[Item] = []
        for item in items:
            if isinstance(item, Ask):
                if item.ours:
                    lane.tell(item.done, errors.Fenced())
                else:
                    self.away.send(item)
            else:
                reads.append(item)
        reads = lane.without_writes(reads)
        if not reads and not self._may_tell():
            return
        self._moved = False
        try:
            session = await self._come_up_to_date()
        except Exception as failure:
            lane.give_up(reads, failure)
            asyncio.get_running_loop().call_later(self._services.limits.journal_retry, self.moved)
        else:
            await lane.let_see(session, reads)

    async def _come_up_to_date(self, *, is_new: bool = False) -> Session:
        """Reads what was stored since, and tells those who listen here. A session in its first epoch has nothing to read."""
        self._held_since = None
        session = self._lane.session
        if session is None:
            session = await self._lane.load()
            await self._tell_watchers_up_to(session)
        elif is_new and session.seq == 0:
            return session
        while entries := await self._services.journal.read(session.id, session.seq, PAGE):
            if entries[-1].seq - session.seq != len(entries):
                # Retention has removed what was not read in time: the snapshot is further than that.
                session = await self._lane.load()
                self._shown = session.seq
                continue
            self._follow(session, entries)
        return session

    def _follow(self, session: Session, entries: list[journal.Entry]) -> None:
        watchers = tuple(self._services.far_watchers)
        for entry in entries:
            event = codec.decode(entry.kind, entry.data)
            fold(session, entry.seq, entry.ts_ms, entry.run_id, event)
            if entry.kind not in DELTAS:
                for watcher in watchers:
                    self._lane.show(watcher, session, event)
        batch = tower.Batch(session.id, entries)
        self._lane.feed.publish(batch)
        for watch in tuple(self._services.far_batch_watchers):
            self._lane.show(watch, session, batch)
        self._shown = session.seq

    async def _tell_watchers_up_to(self, session: Session) -> None:
        """Of a session that was read whole: what happened while nobody here had it in memory. Its cursors page by themselves."""
        while self._is_watched and self._shown is not None and self._shown < session.seq:
            entries = await self._services.journal.read(session.id, self._shown, PAGE)
            if not entries:
                break
            for entry in entries:
                if entry.kind not in DELTAS and self._services.far_watchers:
                    event = codec.decode(entry.kind, entry.data)
                    for watcher in tuple(self._services.far_watchers):
                        self._lane.show(watcher, session, event)
            batch = tower.Batch(session.id, entries)
            for watch in tuple(self._services.far_batch_watchers):
                self._lane.show(watch, session, batch)
            self._shown = entries[-1].seq
        self._shown = session.seq
