"""A session's events from the daemon to the bytes of a document, piece by piece: nothing is kept but what is still open."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from switchtower.cli import through
from switchtower.cli.exporting import markdown, page, reading
from switchtower.cli.exporting.fold import ExportFold
from switchtower.cli.exporting.program import LastScreen
from switchtower.client.client import DaemonClient


async def write_document(client: DaemonClient, session_id: str, form: str, out: Callable[[bytes], object]) -> None:
    """`form` is `markdown`, `html` or `jsonl`."""
    if form == "jsonl":
        async with aclosing(
            reading.read_until_now(client.subscribe(session_id, on_lost=through.print_connection_lost))
        ) as events:
            async for event in events:
                out(event.line + b"\n")
        return
    async with aclosing(_render_pieces(client, session_id, form)) as pieces:
        async for piece in pieces:
            out(piece.encode(errors="replace"))


async def _render_pieces(client: DaemonClient, session_id: str, form: str) -> AsyncGenerator[str, None]:
    writer = markdown if form == "markdown" else page
    about = await client.get_session(session_id) if client.supports("session_info") else None
    session = client.subscribe(session_id, on_lost=through.print_connection_lost)
    fold = ExportFold()
    terminal = about.terminal if about is not None else None
    screen = None if terminal is None else LastScreen(terminal)
    if terminal is not None:
        session.last_seen_seq = max(0, terminal.screenSeq - 1)  # what was painted over since is on no screen
    yield writer.head(session_id, about)
    async with aclosing(reading.read_until_now(session)) as events:
        async for event in events:
            if screen is not None:
                screen.add_event(event)
                continue
            for block in fold.add_event(event):
                yield writer.block(block)
    for block in fold.finish() if screen is None else screen.finish():
        yield writer.block(block)
    yield writer.tail(fold.usage)
