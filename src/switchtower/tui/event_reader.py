"""Reads events for the terminal UI: the open session in batches from near its end, older pages, and pending approvals.

The follower of the open session never gives up while the session is shown: a daemon may be away for as long as it needs. Pending
approvals come from the daemon's list or, if it has none, from the last events of the waiting sessions.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import aclosing
from typing import NamedTuple

from switchtower.client import errors, node_names
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.client.subscription import SessionSubscription
from switchtower.protocols.push import messages
from switchtower.tui.state import session_rows

PAGE_SIZE = 1_500
"""The number of events read at once, at the end and when the user scrolls back."""
BATCH_SECONDS = 0.03
"""Seconds in which events are collected before they are shown; users cannot read faster."""
_RETRY_SECONDS = 1.0
_EARLIEST = re.compile(r"earliest retained seq is (\d{1,18})")


class EventPage(NamedTuple):
    """A page of events. `is_first` means that no older event is available."""

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
                    # The daemon has pruned some of the requested events: start where the journal starts.
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
    """Reads the events directly before `before_seq`."""
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
    """Returns the seq of the first event that the daemon still has, when it reports a gap."""
    match event.payload:
        case messages.Warn("EVENT_GAP", _, str(detail)) if found := _EARLIEST.search(detail):
            return int(found[1])
    return None


_RECENT_EVENTS = 200
"""The number of events read in the first attempt; the request is among the last events of a waiting session."""


async def list_pending(
    client: DaemonClient, known: node_names.NodeNames = node_names.NO_NODES
) -> list[session_rows.InboxItem] | None:
    """Returns None when the daemon has no such list or refuses it to this client."""
    if not client.supports("inbox"):
        return None
    try:
        found = await client.list_approvals()
    except errors.RequestFailed:
        return None
    return [
        session_rows.InboxItem(
            one.sessionId,
            one.runId,
            one.approval,
            one.sessionTitle or f"…{one.sessionId[-6:]}",
            one.host or known.format_owner(one.home),
        )
        for one in found
    ]


async def find_pending(client: DaemonClient, row: session_rows.SessionListRow) -> list[session_rows.InboxItem]:
    """Finds what a waiting session is waiting for. It adds nothing to the session's sequence: reading leaves no trace."""
    most = _RECENT_EVENTS
    while True:
        try:
            head = (await client.subscribe(row.session_id).attach()).replay.toSeq
            found = await _read_events(client, row, after=max(0, head - most), upto=head)
        except errors.RequestFailed:
            return []
        if found or most >= head:
            return found
        most *= 8


async def _read_events(
    client: DaemonClient, row: session_rows.SessionListRow, *, after: int, upto: int
) -> list[session_rows.InboxItem]:
    seen = session_rows.ApprovalInbox()
    session = client.subscribe(row.session_id, last_seen_seq=after)
    if after >= upto:
        return []
    async with aclosing(session.stream_events()) as events:
        async for event in events:
            seen.on_event(event, session_name=row.name, host=row.host)
            if event.seq >= upto:
                break
    return seen.pending
