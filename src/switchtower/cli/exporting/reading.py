"""A session's events from its beginning to its present, once and in order. Follows nothing that happens later."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from switchtower.client.frames import Event
from switchtower.client.session import Session
from switchtower.protocols.push import messages

_EARLIEST = re.compile(r"earliest retained seq is (\d{1,16})$")


async def until_now(session: Session) -> AsyncGenerator[Event, None]:
    """Where the beginning is no longer kept, the warning that says so comes first, and then what is."""
    head = (await session.attach()).replay.toSeq
    reached = 0
    while session.last_seen_seq < head:
        kept_from = None
        async with aclosing(session.events()) as events:
            async for event in events:
                if (kept_from := _kept_from(event, head)) is not None:
                    yield event
                    break
                yield event
                if session.last_seen_seq >= head:
                    return
        if kept_from is None or kept_from <= reached:
            return  # nothing is gained by asking again
        session.last_seen_seq, reached = kept_from - 1, kept_from


def _kept_from(event: Event, head: int) -> int | None:
    """The oldest event that can still be read, if this is the warning that some cannot."""
    match event.payload:
        case messages.Warn("EVENT_GAP", _, str(detail)) if (found := _EARLIEST.search(detail)) and 1 <= int(found[1]) <= head:
            return int(found[1])
    return None
