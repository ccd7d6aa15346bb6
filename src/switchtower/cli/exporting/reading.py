"""A session's events from its beginning to its present, once and in order. Follows nothing that happens later."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from switchtower.client.frames import PushEvent
from switchtower.client.session import SessionSubscription
from switchtower.protocols.push import messages

_EARLIEST_SEQ = re.compile(r"earliest retained seq is (\d{1,16})$")


async def read_until_now(session: SessionSubscription) -> AsyncGenerator[PushEvent, None]:
    """Where the beginning is no longer kept, the warning that says so comes first, and then what is."""
    head = (await session.attach()).replay.toSeq
    reached = 0
    while session.last_seen_seq < head:
        kept_from = None
        async with aclosing(session.stream_events()) as events:
            async for event in events:
                if (kept_from := _find_earliest_seq(event, head)) is not None:
                    yield event
                    break
                yield event
                if session.last_seen_seq >= head:
                    return
        if kept_from is None or kept_from <= reached:
            return  # nothing is gained by asking again
        session.last_seen_seq, reached = kept_from - 1, kept_from


def _find_earliest_seq(event: PushEvent, head: int) -> int | None:
    """The oldest event that can still be read, if this is the warning that some cannot."""
    match event.payload:
        case messages.Warn("EVENT_GAP", _, str(detail)) if (found := _EARLIEST_SEQ.search(detail)) and 1 <= int(found[1]) <= head:
            return int(found[1])
    return None
