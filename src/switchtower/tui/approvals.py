"""What is pending over all sessions: from the daemon's list, or, where it has none, from the waiting sessions' last events."""

from contextlib import aclosing

from switchtower.client import errors, homes
from switchtower.client.client import Client
from switchtower.tui.state import inbox, roster

_LATEST = 200
"""Events that are read at first; a question is among the last of a session that waits."""


async def listed(client: Client, known: homes.Homes = homes.ALONE) -> list[inbox.Pending] | None:
    """None where the daemon has no such list, or none for us."""
    if not client.offers("inbox"):
        return None
    try:
        found = await client.approvals()
    except errors.RequestFailed:
        return None
    return [
        inbox.Pending(
            one.sessionId,
            one.runId,
            one.approval,
            one.sessionTitle or f"…{one.sessionId[-6:]}",
            one.host or known.shown(one.home),
        )
        for one in found
    ]


async def pending_in(client: Client, row: roster.Row) -> list[inbox.Pending]:
    """What a session that waits is waiting for. Nothing is asked for in the session's own sequence: looking leaves no trace."""
    most = _LATEST
    while True:
        try:
            head = (await client.session(row.session_id).attach()).replay.toSeq
            found = await _read(client, row, after=max(0, head - most), upto=head)
        except errors.RequestFailed:
            return []
        if found or most >= head:
            return found
        most *= 8


async def _read(client: Client, row: roster.Row, *, after: int, upto: int) -> list[inbox.Pending]:
    seen = inbox.Inbox()
    session = client.session(row.session_id, last_seen_seq=after)
    if after >= upto:
        return []
    async with aclosing(session.events()) as events:
        async for event in events:
            seen.saw(event, session_name=row.name, host=row.host)
            if event.seq >= upto:
                break
    return seen.pending
