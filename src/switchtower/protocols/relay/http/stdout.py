"""A terminal's output as one long answer, until its run ends. Who reads slowly is a cursor in the journal: what they have not
taken waits there, and not here."""

import asyncio
from typing import Any

import msgspec
from starlette.responses import Response

from switchtower.core import codec, errors, events, journal, tower
from switchtower.protocols.relay import attaching

START, NOW, SCREEN = "start", "now", "screen"
BEGINNINGS = (START, NOW, SCREEN)
MEDIA_TYPE = "application/octet-stream"

HELD_BYTES = 262_144
"""No more is taken from the journal while this much waits to be sent; a page of it comes in one piece."""
PIECE_BYTES = 65_536
_TRIES = 5
"""Retention may outrun whoever looks for the place to begin at."""


class _Piece(msgspec.Struct):
    text: str


_decode_piece = msgspec.json.Decoder(_Piece).decode


class FellBehind(Exception):
    """What comes next was removed before it was read."""


class Following:
    """Implements `tower.Outlet`: what a terminal put out, from some place on."""

    def __init__(self, opening: str = "") -> None:
        self._opening = opening.encode()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._subscription: tower.Subscription | None = None
        self._ends_at: int | None = None
        self._ended = False
        self._lost = False
        self._news = asyncio.Event()

    def start(self, attachment: tower.Attachment) -> None:
        self._subscription = attachment.subscription
        if attachment.session.run is None:
            self._ends_at = attachment.session.seq
            self._ended = attachment.subscription.cursor >= attachment.session.seq
        self._subscription.start()

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()

    async def take(self) -> bytes | None:
        """The next of it; None at the end. Raises `FellBehind`."""
        if self._opening:
            opening, self._opening = self._opening, b""
            return opening
        while not self._waiting:
            if self._ended:
                return None
            if self._lost:
                raise FellBehind
            self._news.clear()
            await self._news.wait()
        count, size = 0, 0
        while count < len(self._waiting) and size < PIECE_BYTES:
            size += len(self._waiting[count])
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        self._waiting_bytes -= size
        if self.ready and self._subscription is not None:
            self._subscription.wake()
        return "".join(_decode_piece(data).text for data in taken).encode()

    # What the subscription calls.

    @property
    def ready(self) -> bool:
        return self._waiting_bytes < HELD_BYTES

    def deliver(self, batch: tower.Batch) -> None:
        for entry in batch.entries:
            if entry.kind == events.ToolProgressed.kind:
                self._waiting.append(entry.data)
                self._waiting_bytes += len(entry.data)
            elif entry.kind == events.RunCompleted.kind:
                self._ended = True
        if self._ends_at is not None and batch.last_seq >= self._ends_at:
            self._ended = True
        self._news.set()

    def fell_behind(self, session_id: str) -> None:
        self._lost = True
        self._news.set()


async def follow(tower_: tower.Tower, session_id: str, begin: str) -> Following:
    """Raises the core's refusals."""
    if begin == NOW:
        # Beyond the head: what comes next, which is what a gap means too.
        following = Following()
        following.start(await attaching.attached(tower_, session_id, tower.FROM_THE_HEAD, following))
        return following
    opening, after_seq = ("", 0) if begin == START else await _screen(tower_, session_id)
    for _ in range(_TRIES):
        following = Following(opening)
        attachment = await attaching.attached(tower_, session_id, after_seq, following)
        if not attachment.gap:
            following.start(attachment)
            return following
        attachment.subscription.close()
        # Some of it is no longer kept: the last whole screen makes up for that, unless it has gone as well.
        opening, after_seq = await _screen(tower_, session_id)
        if after_seq < attachment.earliest_seq - 1:
            opening, after_seq = "", attachment.earliest_seq - 1
    raise errors.Overloaded(f"the output of {session_id} is removed faster than it can be read")


async def _screen(tower_: tower.Tower, session_id: str) -> tuple[str, int]:
    """What paints the last whole screen, and its place; the beginning when there is none."""
    terminal = (await tower_.session(session_id)).terminal
    if terminal is None or terminal.screen_seq == 0:
        return "", 0
    entries = await tower_.entries(session_id, terminal.screen_seq - 1, 1)
    return next(((text, entry.seq) for entry in entries if (text := _painting(entry)) is not None), ("", 0))


def _painting(entry: journal.Entry) -> str | None:
    event = codec.decode(entry.kind, entry.data)
    return event.text if isinstance(event, events.ScreenTaken) else None


def head() -> Response:
    return Response(media_type=MEDIA_TYPE)


class Stdout:
    """The answer: an ASGI app that ends with the run, or when its reader leaves."""

    def __init__(self, tower_: tower.Tower, session_id: str, following: Following) -> None:
        self._tower = tower_
        self._session_id = session_id
        self._following = following

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        leaving = asyncio.ensure_future(_disconnected(receive))
        pouring = asyncio.ensure_future(self._pour(send))
        try:
            await asyncio.wait((leaving, pouring), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            pouring.cancel()
            await asyncio.wait((leaving, pouring))
            self._following.close()
        if not pouring.cancelled():
            pouring.result()

    async def _pour(self, send: Any) -> None:
        headers = [(b"content-type", MEDIA_TYPE.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while (piece := await self._next()) is not None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _next(self) -> bytes | None:
        while True:
            try:
                return await self._following.take()
            except FellBehind:
                self._following.close()
                self._following = await follow(self._tower, self._session_id, SCREEN)


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
