"""A lane's part in a cluster while another node owns its session, or none does.

Commands are forwarded to the owner (`forwarding`). Reads are served from the journal, up to its end at that moment. Local
subscribers get what other nodes store: a notification reports that something was stored, and the journal has the entries.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from switchtower.cluster.forwarding import CommandForwarder
from switchtower.core import codec, errors, events
from switchtower.core.fold import fold
from switchtower.core.ports import cluster, journal, session_service
from switchtower.core.session import Session
from switchtower.runtime.lane_items import QueuedCommand

if TYPE_CHECKING:
    from switchtower.runtime.lane import Lane, LaneServices
    from switchtower.runtime.lane_items import LaneItem

PAGE = 1_000
DELTAS = frozenset({events.TextDelta.kind, events.ThinkingDelta.kind, events.ToolProgressed.kind})
"""Pieces of streamed text, which have no other effect."""
RESPONSE_GRACE = 1.0
"""Seconds for which entries of another node are held back while its responses are in flight."""
ANOTHER_NODE = "another node"


class RemoteFollower:
    def __init__(self, lane: "Lane", services: "LaneServices", ownership: cluster.SessionOwnership) -> None:
        self._lane = lane
        self._services = services
        self._ownership = ownership
        patience = services.limits.owner_timeout
        self.forwarder = CommandForwarder(
            lane.session_id, ownership, patience, self.become_owner, self._session_exists, lane.respond
        )
        self.forwarder.on_settled = self._on_responses_settled
        self._arriving: int | None = None
        """The epoch of an acquired lease, while the entries before it are still to be read."""
        self._lost: str | None = None
        """The machine that the session was on, when that is not this one."""
        self._has_unpublished = False
        """Another node has stored entries that were not published here."""
        self._published_seq: int | None = None
        """The last seq that the watchers of all sessions have seen, when it is known."""
        self._held_since: float | None = None
        self._reclaiming: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self.forwarder.is_busy or self._reclaiming is not None

    async def _session_exists(self) -> bool:
        return await self._services.journal.load(self._lane.session_id) is not None

    # Gaining and losing ownership

    def become_owner(self, epoch: int, asks: Sequence[QueuedCommand] = (), *, lost: str | None = ANOTHER_NODE) -> None:
        """This node has become the session's owner. The commands that waited for that come first. `lost` is the machine that
        the session was on, when that is not this one.
        """
        if not self._lane.is_owner:
            self._arriving = epoch
            self._lost = lost
        self._lane.requeue(asks)

    def lose_ownership(self) -> None:
        """Another node owns the session, or none does: the state in memory may contain more than what was stored."""
        self.forwarder.forget_owner()
        self._arriving = None
        lane, session = self._lane, self._lane.session
        if not lane.is_owner:
            return
        lane.is_owner = False
        self._lost = None
        self._published_seq = lane.feed.head
        lane.discard_state()
        self._services.on_release(lane)
        self.on_remote_append(self._published_seq)
        if lane.is_busy or session is None or session.run is not None or session.shells or session.errands:
            self.reclaim()

    def reclaim(self) -> None:
        """Work may be active that was stopped here, was stored while ownership was lost, or could not be read. If this node
        turns out to own the session, no other node recovers it.
        """
        if self._reclaiming is None:
            self._reclaiming = asyncio.get_running_loop().create_task(self._find_owner())

    async def _find_owner(self) -> None:
        try:
            while not self._lane.is_owner and self._arriving is None and not self._services.stopping():
                await asyncio.sleep(self._services.limits.journal_retry)
                try:
                    home = await self._ownership.claim(self._lane.session_id)
                except errors.OwnerUnreachable:
                    continue
                if isinstance(home, cluster.OwnedHere):
                    self.become_owner(home.epoch, lost=self._lost)
                return
        finally:
            self._reclaiming = None

    # Following

    @property
    def has_followers(self) -> bool:
        """Some subscriber or watcher here follows sessions of other nodes."""
        return self._lane.feed.cursors > 0 or self._is_watched

    @property
    def _is_watched(self) -> bool:
        return bool(self._services.remote_watchers or self._services.remote_batch_watchers)

    def on_remote_append(self, before: int | None = None) -> None:
        """Another node has stored entries, after this seq if that is known."""
        if self._lane.is_owner or not self.has_followers:
            return
        if self._published_seq is None and self._lane.session is None:
            self._published_seq = before
        self._has_unpublished = True
        self._lane.wake()

    @property
    def has_work(self) -> bool:
        return self._arriving is not None or self._can_publish()

    def _can_publish(self) -> bool:
        """A client must get the response before the resulting events; the two arrive on different paths, so the notification
        may be first.
        """
        if not self._has_unpublished:
            return False
        if not self.forwarder.in_flight:
            return True
        loop = asyncio.get_running_loop()
        if self._held_since is None:
            self._held_since = loop.time()
            loop.call_later(RESPONSE_GRACE, self._on_responses_settled)
        return loop.time() - self._held_since >= RESPONSE_GRACE

    def _on_responses_settled(self) -> None:
        if self._has_unpublished:
            self._lane.wake()
        elif not self._lane.is_busy:
            self._services.on_idle(self._lane)

    # A turn of the lane

    async def process(self, items: "list[LaneItem]") -> bool:
        """True: this node owns the session now, and the lane continues the turn. Otherwise all items are handled here."""
        if self._arriving is None:
            await self._reject(items)
            return False
        epoch, self._arriving = self._arriving, None
        try:
            session = await self._catch_up(is_new=epoch == 1)
        except Exception as failure:
            self._lane.fail_turn(items, failure)
            self.reclaim()  # this node holds the lease, so no other node recovers what is active
            return False
        self._lane.become_owner(epoch)
        if session.host is None and (session.run is not None or session.shells or session.errands):
            # Active work has lost its engine. No command is decided before it is recovered or closed.
            self._services.on_resume(self._lane, self._lost)
        return True

    async def _reject(self, items: "list[LaneItem]") -> None:
        lane = self._lane
        reads: list[LaneItem] = []
        for item in items:
            if isinstance(item, QueuedCommand):
                if item.is_internal:
                    lane.respond(item.done, errors.Fenced())
                else:
                    self.forwarder.send(item)
            else:
                reads.append(item)
        reads = lane.serve_without_writes(reads)
        if not reads and not self._can_publish():
            return
        self._has_unpublished = False
        try:
            session = await self._catch_up()
        except Exception as failure:
            lane.fail_turn(reads, failure)
            asyncio.get_running_loop().call_later(self._services.limits.journal_retry, self.on_remote_append)
        else:
            await lane.serve_readers(session, reads)

    async def _catch_up(self, *, is_new: bool = False) -> Session:
        """Reads the entries since the last read, and publishes them here. A session in its first epoch has nothing to read."""
        self._held_since = None
        session = self._lane.session
        if session is None:
            session = await self._lane.load()
            await self._notify_watchers(session)
        elif is_new and session.seq == 0:
            return session
        while entries := await self._services.journal.read(session.id, session.seq, PAGE):
            if entries[-1].seq - session.seq != len(entries):
                # Retention has removed entries that were not read in time: the snapshot is newer.
                session = await self._lane.load()
                self._published_seq = session.seq
                continue
            self._follow(session, entries)
        return session

    def _follow(self, session: Session, entries: list[journal.Entry]) -> None:
        watchers = tuple(self._services.remote_watchers)
        for entry in entries:
            event = codec.decode(entry.kind, entry.data)
            fold(session, entry.seq, entry.ts_ms, entry.run_id, event)
            if entry.kind not in DELTAS:
                for watcher in watchers:
                    self._lane.notify_watcher(watcher, session, event)
        batch = session_service.Batch(session.id, entries)
        self._lane.feed.publish(batch)
        for watch in tuple(self._services.remote_batch_watchers):
            self._lane.notify_watcher(watch, session, batch)
        self._published_seq = session.seq

    async def _notify_watchers(self, session: Session) -> None:
        """Notifies the watchers of events that happened while the session was not in memory here. Its cursors read pages by
        themselves.
        """
        while self._is_watched and self._published_seq is not None and self._published_seq < session.seq:
            entries = await self._services.journal.read(session.id, self._published_seq, PAGE)
            if not entries:
                break
            for entry in entries:
                if entry.kind not in DELTAS and self._services.remote_watchers:
                    event = codec.decode(entry.kind, entry.data)
                    for watcher in tuple(self._services.remote_watchers):
                        self._lane.notify_watcher(watcher, session, event)
            batch = session_service.Batch(session.id, entries)
            for watch in tuple(self._services.remote_batch_watchers):
                self._lane.notify_watcher(watch, session, batch)
            self._published_seq = entries[-1].seq
        self._published_seq = session.seq
