"""One session, watched: its events in batches, across lost connections and restarts of the daemon, from near its end on.

It never gives up while somebody looks at the session: a daemon that is away may take as long as it likes.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import aclosing
from typing import NamedTuple

from switchtower.client import errors
from switchtower.client.client import Client
from switchtower.client.frames import Event
from switchtower.client.session import Session
from switchtower.protocols.push import messages

PAGE = 1_500
"""Events that are read at once, at the end and when somebody scrolls back."""
MOMENT = 0.03
"""Seconds in which events are collected before they are shown: nobody reads faster."""
_RETRY = 1.0
_EARLIEST = re.compile(r"earliest retained seq is (\d{1,18})")


class Page(NamedTuple):
    """`is_first`: nothing older can be had."""

    events: list[Event]
    is_first: bool


class Watch:
    def __init__(
        self,
        client: Client,
        session_id: str,
        *,
        after_seq: int,
        on_events: Callable[[str, list[Event]], None],
        on_lost: Callable[[], None],
        on_refused: Callable[[str, errors.ClientError], None],
    ) -> None:
        self.session_id = session_id
        self._client = client
        self._after_seq = after_seq
        self._on_events = on_events
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._batch: list[Event] = []
        self._flush: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._watch())

    def close(self) -> None:
        self._task.cancel()
        if self._flush is not None:
            self._flush.cancel()

    async def _watch(self) -> None:
        while True:
            session = self._client.session(self.session_id, last_seen_seq=self._after_seq, on_lost=self._on_lost)
            try:
                await self._follow(session)
            except (errors.DaemonUnreachable, errors.ConnectionLost):
                self._on_lost()
                await asyncio.sleep(_RETRY)
            except errors.ClientError as problem:
                self._on_refused(self.session_id, problem)
                return

    async def _follow(self, session: Session) -> None:
        async with aclosing(session.events()) as events:
            async for event in events:
                if (earliest := _gap_begins_at(event)) is not None and earliest - 1 > self._after_seq:
                    # What came before is gone, but not all of it: begin where the journal does.
                    self._after_seq = earliest - 1
                    return
                self._after_seq = session.last_seen_seq
                self._batch.append(event)
                if self._flush is None:
                    self._flush = asyncio.get_running_loop().call_later(MOMENT, self._hand_over)

    def _hand_over(self) -> None:
        self._flush = None
        batch, self._batch = self._batch, []
        self._on_events(self.session_id, batch)


async def older(client: Client, session_id: str, before_seq: int) -> Page:
    """The events directly before one."""
    last = before_seq - 1
    after = max(0, last - PAGE)
    if last <= 0:
        return Page([], is_first=True)
    for _ in range(2):
        events: list[Event] = []
        session = client.session(session_id, last_seen_seq=after)
        async with aclosing(session.events()) as arriving:
            async for event in arriving:
                earliest = _gap_begins_at(event)
                if earliest is not None:
                    if earliest > last:
                        return Page([], is_first=True)
                    after = earliest - 1
                    break
                if event.seq <= last:
                    events.append(event)
                if event.seq >= last:
                    return Page(events, is_first=after == 0)
    return Page([], is_first=True)


def _gap_begins_at(event: Event) -> int | None:
    """The first event that is still kept, where some are not."""
    match event.payload:
        case messages.Warn("EVENT_GAP", _, str(detail)) if found := _EARLIEST.search(detail):
            return int(found[1])
    return None
