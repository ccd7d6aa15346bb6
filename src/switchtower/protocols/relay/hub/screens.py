"""What somebody who comes late needs to see a run's terminal as it is: the last whole screen, and all output since."""

from typing import Any

from switchtower.core import codec, events, journal, tower
from switchtower.core import errors as core_errors

PAGE_SIZE = 500
MAX_SCREEN_BYTES = 524_288
"""Of output since the last whole screen. A program that floods its terminal leaves nothing else to see."""


async def read_screen(tower_: tower.SessionService, session_id: str) -> dict[str, Any] | None:
    """`text` paints the screen as it was at `id`. None: there is no such session, or it has no terminal."""
    try:
        session = await tower_.get_session(session_id)
    except core_errors.SessionNotFound:
        return None
    terminal = session.terminal
    if terminal is None:
        return None
    entries: list[journal.Entry] = []
    size, after = 0, max(terminal.screen_seq - 1, 0)
    while size <= MAX_SCREEN_BYTES and (page := await tower_.read_entries(session_id, after, PAGE_SIZE)):
        entries += page
        after = page[-1].seq
        size += sum(len(entry.data) for entry in page)
    if size > MAX_SCREEN_BYTES:
        entries = await tower_.read_entries_before(session_id, tower.HEAD_CURSOR, PAGE_SIZE)
        after = entries[-1].seq if entries else after
    return {"text": _collect_screen_text(entries), "cols": terminal.cols, "rows": terminal.rows, "id": after}


def _collect_screen_text(entries: list[journal.Entry]) -> str:
    pieces: list[str] = []
    for entry in entries:
        if entry.kind in (events.ToolProgressed.kind, events.ScreenCaptured.kind):
            event = codec.decode(entry.kind, entry.data)
            if isinstance(event, events.ScreenCaptured):
                pieces = [event.text]
            elif isinstance(event, events.ToolProgressed):
                pieces.append(event.text)
    return "".join(pieces)
