"""A terminal's output as one long response, until its run ends, and a request's body typed into a terminal as it arrives.

A slow reader is a cursor in the journal: the output that it has not taken waits there, and not here.
"""

import asyncio
import codecs
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from switchtower.core import codec, errors, events
from switchtower.core.ports import journal, session_service
from switchtower.protocols import connection
from switchtower.protocols.relay import messages
from switchtower.protocols.relay.host.commands import RunCommands
from switchtower.web_api import responses

START, END, SCREEN = "start", "now", "screen"
START_POSITIONS = (START, END, SCREEN)
MEDIA_TYPE = "application/octet-stream"

MAX_BUFFERED_BYTES = 262_144
"""No more is read from the journal while this many bytes wait to be sent; a page arrives in one piece."""
CHUNK_BYTES = 65_536
_MAX_ATTEMPTS = 5
"""Retention may remove entries faster than a new reader finds its starting point."""


class _OutputPiece(msgspec.Struct):
    text: str


_decode_piece = msgspec.json.Decoder(_OutputPiece).decode


class OutputPruned(Exception):
    """The next output was removed before it was read."""


class TerminalSubscriber:
    """Implements `session_service.Subscriber`: a terminal's output from some place on."""

    def __init__(self, initial_output: str = "") -> None:
        self._initial_output = initial_output.encode()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._subscription: session_service.Subscription | None = None
        self._ends_at: int | None = None
        self._ended = False
        self._has_gap = False
        self._changed = asyncio.Event()

    def start(self, attachment: session_service.Attachment) -> None:
        self._subscription = attachment.subscription
        if attachment.session.run is None:
            self._ends_at = attachment.session.seq
            self._ended = attachment.subscription.cursor >= attachment.session.seq
        self._subscription.start()

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()

    async def read_next(self) -> bytes | None:
        """Returns the next output; None at the end. Raises `OutputPruned`."""
        if self._initial_output:
            opening, self._initial_output = self._initial_output, b""
            return opening
        while not self._waiting:
            if self._ended:
                return None
            if self._has_gap:
                raise OutputPruned
            self._changed.clear()
            await self._changed.wait()
        count, size = 0, 0
        while count < len(self._waiting) and size < CHUNK_BYTES:
            size += len(self._waiting[count])
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        self._waiting_bytes -= size
        if self.is_ready and self._subscription is not None:
            self._subscription.wake()
        return "".join(_decode_piece(data).text for data in taken).encode()

    # The subscriber's side

    @property
    def is_ready(self) -> bool:
        return self._waiting_bytes < MAX_BUFFERED_BYTES

    def deliver(self, batch: session_service.Batch) -> None:
        for entry in batch.entries:
            if entry.kind == events.ToolProgressed.kind:
                self._waiting.append(entry.data)
                self._waiting_bytes += len(entry.data)
            elif entry.kind == events.RunCompleted.kind:
                self._ended = True
        if self._ends_at is not None and batch.last_seq >= self._ends_at:
            self._ended = True
        self._changed.set()

    def on_gap(self, session_id: str) -> None:
        self._has_gap = True
        self._changed.set()


async def follow_terminal(tower_: session_service.SessionService, session_id: str, position: str) -> TerminalSubscriber:
    """Raises the core's refusals."""
    if position == END:
        # The cursor is beyond the head: only new output is read, as after a gap.
        following = TerminalSubscriber()
        following.start(await connection.attach(tower_, session_id, session_service.HEAD_CURSOR, following))
        return following
    opening, after_seq = ("", 0) if position == START else await _load_screen(tower_, session_id)
    for _ in range(_MAX_ATTEMPTS):
        following = TerminalSubscriber(opening)
        attachment = await connection.attach(tower_, session_id, after_seq, following)
        if not attachment.gap:
            following.start(attachment)
            return following
        attachment.subscription.close()
        # Some output is no longer stored: the last whole screen replaces it, unless that was removed as well.
        opening, after_seq = await _load_screen(tower_, session_id)
        if after_seq < attachment.earliest_seq - 1:
            opening, after_seq = "", attachment.earliest_seq - 1
    raise errors.Overloaded(f"the output of {session_id} is removed faster than it can be read")


async def _load_screen(tower_: session_service.SessionService, session_id: str) -> tuple[str, int]:
    """Returns the text that paints the last whole screen, and its place; the start when there is none."""
    terminal = (await tower_.get_session(session_id)).terminal
    if terminal is None or terminal.screen_seq == 0:
        return "", 0
    entries = await tower_.read_entries(session_id, terminal.screen_seq - 1, 1)
    return next(((text, entry.seq) for entry in entries if (text := _read_painting(entry)) is not None), ("", 0))


def _read_painting(entry: journal.Entry) -> str | None:
    event = codec.decode(entry.kind, entry.data)
    return event.text if isinstance(event, events.ScreenCaptured) else None


def make_head_response() -> Response:
    return Response(media_type=MEDIA_TYPE)


class TerminalOutputResponse:
    """The response: an ASGI app that ends with the run, or when its reader disconnects."""

    def __init__(self, tower_: session_service.SessionService, session_id: str, subscriber: TerminalSubscriber) -> None:
        self._tower = tower_
        self._session_id = session_id
        self._subscriber = subscriber

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
        pouring = asyncio.ensure_future(self._send_output(send))
        try:
            await asyncio.wait((leaving, pouring), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            pouring.cancel()
            await asyncio.wait((leaving, pouring))
            self._subscriber.close()
        if not pouring.cancelled():
            pouring.result()

    async def _send_output(self, send: Any) -> None:
        headers = [(b"content-type", MEDIA_TYPE.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while (piece := await self._read_next()) is not None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _read_next(self) -> bytes | None:
        while True:
            try:
                return await self._subscriber.read_next()
            except OutputPruned:
                self._subscriber.close()
                self._subscriber = await follow_terminal(self._tower, self._session_id, SCREEN)


async def _wait_for_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def type_request_body(request: Request, card: journal.Card, commands: RunCommands, actor: events.Actor) -> None:
    """Each piece is journalled before the next is read from the socket, so nothing piles up here."""
    characters = codecs.getincrementaldecoder("utf-8")()
    try:
        async for piece in request.stream():
            await commands.send_stdin(card, messages.SendStdin(text=characters.decode(piece)), actor)
        characters.decode(b"", final=True)
    except UnicodeDecodeError:
        raise responses.HttpError(400, "what is typed is UTF-8") from None
