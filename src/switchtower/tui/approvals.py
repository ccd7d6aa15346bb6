"""What is pending over all sessions: from the daemon's list, or, where it has none, from the waiting sessions' last events."""

from contextlib import aclosing

from switchtower.client import errors, homes
from switchtower.client.client import DaemonClient
from switchtower.tui.state import inbox, roster

_RECENT_EVENTS = 200
"""Events that are read at first; a question is among the last of a session that waits."""


async def list_pending(client: DaemonClient, known: homes.NodeNames = homes.NO_NODES) -> list[inbox.InboxItem] | None:
    """None where the daemon has no such list, or none for us."""
    if not client.supports("inbox"):
        return None
    try:
        found = await client.list_approvals()
    except errors.RequestFailed:
        return None
    return [
        inbox.InboxItem(
            one.sessionId,
            one.runId,
            one.approval,
            one.sessionTitle or f"…{one.sessionId[-6:]}",
            one.host or known.format_owner(one.home),
        )
        for one in found
    ]


async def find_pending(client: DaemonClient, row: roster.SessionListRow) -> list[inbox.InboxItem]:
    """What a session that waits is waiting for. Nothing is asked for in the session's own sequence: looking leaves no trace."""
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


async def _read_events(client: DaemonClient, row: roster.SessionListRow, *, after: int, upto: int) -> list[inbox.InboxItem]:
    seen = inbox.ApprovalInbox()
    session = client.subscribe(row.session_id, last_seen_seq=after)
    if after >= upto:
        return []
    async with aclosing(session.stream_events()) as events:
        async for event in events:
            seen.on_event(event, session_name=row.name, host=row.host)
            if event.seq >= upto:
                break
    return seen.pending
