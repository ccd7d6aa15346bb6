"""Streams a session's events from the daemon into a document, from the first event to the current one, and keeps only what is
still open.

It does not follow later events. For a terminal program it renders the last screen from the last full repaint and all output
since.
"""

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from switchtower.cli.export import blocks, html_page, markdown
from switchtower.cli.export.blocks import ExportFold
from switchtower.cli.runs import run_watch
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.client.subscription import SessionSubscription
from switchtower.protocols.push import extension_messages, messages

if TYPE_CHECKING:
    from switchtower.presentation.program_screen import ProgramScreen


async def write_document(client: DaemonClient, session_id: str, form: str, out: Callable[[bytes], object]) -> None:
    """Writes the document. `form` is `markdown`, `html` or `jsonl`."""
    if form == "jsonl":
        async with aclosing(read_until_now(client.subscribe(session_id, on_lost=run_watch.print_connection_lost))) as events:
            async for event in events:
                out(event.line + b"\n")
        return
    async with aclosing(_render_pieces(client, session_id, form)) as pieces:
        async for piece in pieces:
            out(piece.encode(errors="replace"))


async def _render_pieces(client: DaemonClient, session_id: str, form: str) -> AsyncGenerator[str, None]:
    writer = markdown if form == "markdown" else html_page
    about = await client.get_session(session_id) if client.supports("session_info") else None
    session = client.subscribe(session_id, on_lost=run_watch.print_connection_lost)
    fold = ExportFold()
    terminal = about.terminal if about is not None else None
    screen = None if terminal is None else LastScreen(terminal)
    if terminal is not None:
        session.last_seen_seq = max(0, terminal.screenSeq - 1)  # earlier output was painted over
    yield writer.render_head(session_id, about)
    async with aclosing(read_until_now(session)) as events:
        async for event in events:
            if screen is not None:
                screen.add_event(event)
                continue
            for block in fold.add_event(event):
                yield writer.render_block(block)
    for block in fold.finish() if screen is None else screen.finish():
        yield writer.render_block(block)
    yield writer.render_tail(fold.usage)


_EARLIEST_SEQ = re.compile(r"earliest retained seq is (\d{1,16})$")


async def read_until_now(session: SessionSubscription) -> AsyncGenerator[PushEvent, None]:
    """Yields every event up to the current one. If the daemon has pruned the start, its gap warning comes first."""
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
            return  # another attempt would return the same
        session.last_seen_seq, reached = kept_from - 1, kept_from


def _find_earliest_seq(event: PushEvent, head: int) -> int | None:
    """Returns the seq of the oldest event that the daemon still has, if this is its gap warning."""
    match event.payload:
        case messages.Warn("EVENT_GAP", _, str(detail)) if (found := _EARLIEST_SEQ.search(detail)) and 1 <= int(found[1]) <= head:
            return int(found[1])
    return None


_SIZE = re.compile(r"(\d{1,4})x(\d{1,4})")


class LastScreen:
    def __init__(self, terminal: extension_messages.Terminal) -> None:
        self._size = terminal.cols, terminal.rows
        self._screen = self._make_screen()
        self._ts = 0
        self._ended: list[blocks.ExportBlock] = []

    def _make_screen(self) -> "ProgramScreen":
        from switchtower.presentation.program_screen import ProgramScreen

        return ProgramScreen(*self._size)

    def add_event(self, event: PushEvent) -> None:
        self._ts = event.ts
        match event.payload:
            case messages.Status(_, "Screen", str(detail)):
                self._screen = self._make_screen()
                self._screen.feed(detail)
            case messages.Status(_, "Tool output", str(detail)):
                self._screen.feed(detail)
            case messages.Status(_, "Terminal resized", str(detail)) if found := _SIZE.fullmatch(detail):
                self._size = int(found[1]), int(found[2])
                self._screen.resize(*self._size)
            case messages.RunComplete(_, outcome, summary, acceptance):
                self._ended = [
                    blocks.ExportedRunEnd(ts=event.ts, outcome=outcome, summary=summary, results=acceptance.results, done=True)
                ]

    def finish(self) -> list[blocks.ExportBlock]:
        lines = self._screen.read_lines()
        while lines and not lines[-1]:
            lines.pop()
        return [blocks.ExportedScreen(ts=self._ts, lines=lines, done=True), *self._ended]
