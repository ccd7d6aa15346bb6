"""One session, watched: its events in batches, across lost connections and restarts of the daemon, from near its end on.

It never gives up while somebody looks at the session: a daemon that is away may take as long as it likes.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import aclosing
from typing import NamedTuple

from switchtower.client import errors
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.client.session import SessionSubscription
from switchtower.protocols.push import messages

PAGE_SIZE = 1_500
"""Events that are read at once, at the end and when somebody scrolls back."""
BATCH_SECONDS = 0.03
"""Seconds in which events are collected before they are shown: nobody reads faster."""
_RETRY_SECONDS = 1.0
_EARLIEST = re.compile(r"earliest retained seq is (\d{1,18})")


class EventPage(NamedTuple):
    """`is_first`: nothing older can be had."""

    events: list[PushEvent]
    is_first: bool


class SessionFollower:
    def __init__(
        self,
        client: DaemonClient,
        session_id: str,
        *,
        after_seq: int,
        on_events: Callable[[str, list[PushEvent]], None],
        on_lost: Callable[[], None],
        on_refused: Callable[[str, errors.ClientError], None],
    ) -> None:
        self.session_id = session_id
        self._client = client
        self._after_seq = after_seq
        self._on_events = on_events
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._batch: list[PushEvent] = []
        self._flush: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._watch())

    def close(self) -> None:
        self._task.cancel()
        if self._flush is not None:
            self._flush.cancel()

    async def _watch(self) -> None:
        while True:
            session = self._client.subscribe(self.session_id, last_seen_seq=self._after_seq, on_lost=self._on_lost)
            try:
                await self._follow(session)
            except (errors.DaemonUnreachable, errors.ConnectionLost):
                self._on_lost()
                await asyncio.sleep(_RETRY_SECONDS)
            except errors.ClientError as problem:
                self._on_refused(self.session_id, problem)
                return

    async def _follow(self, session: SessionSubscription) -> None:
        async with aclosing(session.stream_events()) as events:
            async for event in events:
                if (earliest := _find_gap_start(event)) is not None and earliest - 1 > self._after_seq:
                    # What came before is gone, but not all of it: begin where the journal does.
                    self._after_seq = earliest - 1
                    return
                self._after_seq = session.last_seen_seq
                self._batch.append(event)
                if self._flush is None:
                    self._flush = asyncio.get_running_loop().call_later(BATCH_SECONDS, self._deliver_batch)

    def _deliver_batch(self) -> None:
        self._flush = None
        batch, self._batch = self._batch, []
        self._on_events(self.session_id, batch)


async def read_older_page(client: DaemonClient, session_id: str, before_seq: int) -> EventPage:
    """The events directly before one."""
    last = before_seq - 1
    after = max(0, last - PAGE_SIZE)
    if last <= 0:
        return EventPage([], is_first=True)
    for _ in range(2):
        events: list[PushEvent] = []
        session = client.subscribe(session_id, last_seen_seq=after)
        async with aclosing(session.stream_events()) as arriving:
            async for event in arriving:
                earliest = _find_gap_start(event)
                if earliest is not None:
                    if earliest > last:
                        return EventPage([], is_first=True)
                    after = earliest - 1
                    break
                if event.seq <= last:
                    events.append(event)
                if event.seq >= last:
                    return EventPage(events, is_first=after == 0)
    return EventPage([], is_first=True)


def _find_gap_start(event: PushEvent) -> int | None:
    """The first event that is still kept, where some are not."""
    match event.payload:
        case messages.Warn("EVENT_GAP", _, str(detail)) if found := _EARLIEST.search(detail):
            return int(found[1])
    return None
