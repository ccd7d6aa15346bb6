"""The subscriptions: one feed per session, one cursor per subscriber. A feed publishes what is committed and waits for no
subscriber.

A subscriber at the head is live and gets each batch. One that cannot take a batch leaves the live set with its cursor
unchanged, and reads pages from the journal when it can take more. Nothing is queued here, so nothing can grow.
"""

import asyncio
import logging

from switchtower.core import errors
from switchtower.core.ports import journal, session_service
from switchtower.runtime.lane_items import RuntimeLimits

log = logging.getLogger(__name__)


class Feed:
    """One session's live subscribers. `head` is the last published seq."""

    def __init__(self, session_id: str, journal_: journal.Journal, limits: RuntimeLimits) -> None:
        self.session_id = session_id
        self.journal = journal_
        self.limits = limits
        self.head = 0
        self.live: set[Cursor] = set()
        self.cursors = 0
        """The number of all subscribers, including those that lag."""

    def publish(self, batch: session_service.Batch) -> None:
        self.head = batch.last_seq
        for cursor in tuple(self.live):
            try:
                cursor.offer(batch)
            except Exception:
                # An error of one subscriber must not keep the batch from the others.
                cursor.drop_broken()

    def reset_head(self, head: int) -> None:
        """The session was read from the journal: a subscriber that is not at its head reads pages from there."""
        self.head = head
        for cursor in tuple(self.live):
            if cursor.cursor != head:
                self.live.discard(cursor)
                cursor.wake()


class Cursor:
    """One subscriber's position in one session."""

    def __init__(self, feed: Feed, after_seq: int, subscriber: session_service.Subscriber) -> None:
        self.cursor = after_seq
        self._feed = feed
        self._subscriber = subscriber
        self._paging: asyncio.Task[None] | None = None
        self._closed = False
        self._paced = subscriber if isinstance(subscriber, session_service.LagObserver) else None
        self._behind = False
        feed.cursors += 1

    def start(self) -> None:
        self.wake()

    def wake(self) -> None:
        """The subscriber can take more: goes live when nothing is missing, otherwise reads pages until then."""
        if self._closed or self._paging or self in self._feed.live:
            return
        if self.cursor == self._feed.head:
            self._go_live()
        else:
            self._paging = asyncio.get_running_loop().create_task(self._read_page())

    def offer(self, batch: session_service.Batch) -> None:
        if not self._subscriber.is_ready:
            self._feed.live.discard(self)
            if self._paced is not None and not self._behind:
                self._behind = True
                self._paced.on_lagging(batch.session_id)
            return
        if batch.first_seq <= self.cursor:
            # Paging reads what is committed, which may be ahead of what is published.
            fresh = [entry for entry in batch.entries if entry.seq > self.cursor]
            if not fresh:
                return
            batch = session_service.Batch(batch.session_id, fresh)
        assert batch.first_seq == self.cursor + 1, "a live subscriber misses nothing"
        self.cursor = batch.last_seq
        self._subscriber.deliver(batch)

    async def _read_page(self) -> None:
        feed = self._feed
        try:
            while self._subscriber.is_ready and not self._closed:
                if self.cursor >= feed.head:
                    self._go_live()
                    return
                try:
                    entries = await feed.journal.read(feed.session_id, self.cursor, feed.limits.page)
                except errors.JournalUnavailable as problem:
                    log.warning("a page of %s could not be read: %s", feed.session_id, problem)
                    await asyncio.sleep(feed.limits.journal_retry)
                    continue
                if self._closed:
                    return
                if not entries or entries[-1].seq - self.cursor != len(entries):
                    self.close()
                    self._subscriber.on_gap(feed.session_id)
                    return
                self.cursor = entries[-1].seq
                self._subscriber.deliver(session_service.Batch(feed.session_id, entries))
                await asyncio.sleep(0)  # one page per turn of the event loop: other clients and lanes run in between
        except Exception:
            self.drop_broken()
        finally:
            self._paging = None
            # The subscriber may have become ready again between the last check and here.
            if self._subscriber.is_ready and not self._closed and self not in feed.live:
                self.wake()

    def _go_live(self) -> None:
        self._feed.live.add(self)
        if self._behind and self._paced is not None:
            self._behind = False
            self._paced.on_caught_up(self._feed.session_id)

    def drop_broken(self) -> None:
        """The subscriber raised, which is a bug in it: it gets nothing more, and the log has the reason."""
        log.exception("an outlet of %s failed at seq %d", self._feed.session_id, self.cursor)
        self.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._feed.cursors -= 1
            self._feed.live.discard(self)
            if self._paging and self._paging is not asyncio.current_task():
                self._paging.cancel()
