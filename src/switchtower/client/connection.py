"""One connection to the daemon: it splits lines, matches answers to requests, and puts events into a bounded queue.

A connection that keeps events stops reading while its queue is full, so the daemon pages instead of this process growing.
Requests that must get through at any time therefore belong on a connection that keeps no events. It never reconnects.
"""

import asyncio
import itertools
from collections import deque
from pathlib import Path
from typing import TypeVar, cast

from msgspec import Struct

from switchtower.client import errors, frames
from switchtower.protocols.push import messages

REQUEST_TIMEOUT = 30.0
MAX_LINE_BYTES = 64 * 1_048_576

Answer = TypeVar("Answer", bound=Struct)


class DaemonConnection(asyncio.Protocol):
    def __init__(self, *, keep_events: int = 0) -> None:
        """Queues at most `keep_events` events for `receive_event`; with 0 the connection drops every event unread."""
        self._keep_events = keep_events
        self._events: deque[frames.PushEvent] = deque()
        self._event_arrived: asyncio.Future[None] | None = None
        self._pending: dict[str, asyncio.Future[Struct]] = {}
        self._numbers = itertools.count(1)
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self._reading = True
        self._transport: asyncio.Transport | None = None
        self._close_reason: errors.ClientError | None = None
        self.greeting: messages.HelloAnswer | None = None
        """The daemon's answer to `hello`."""

    @classmethod
    async def open(cls, socket: Path, *, keep_events: int = 0) -> "DaemonConnection":
        """Raises `OSError` when no daemon listens on the socket."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_unix_connection(lambda: cls(keep_events=keep_events), str(socket))
        return connection

    @property
    def is_open(self) -> bool:
        return self._close_reason is None

    async def request(
        self,
        request: frames.OutgoingRequest,
        answer_type: type[Answer],
        *,
        session_id: str | None = None,
        timeout: float = REQUEST_TIMEOUT,
    ) -> Answer:
        """Raises `RequestFailed` when the daemon refuses, and `ConnectionLost` when no answer arrives."""
        if self._close_reason is not None or self._transport is None:
            raise self._close_reason or errors.ConnectionLost("the connection is not open")
        request_id = f"req_{next(self._numbers)}"
        answered: asyncio.Future[Struct] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = answered
        self._update_reading()
        self._transport.write(frames.encode_request(request_id, request, session_id))
        try:
            async with asyncio.timeout(timeout):
                answer = await answered
        except TimeoutError:
            raise errors.ConnectionLost(
                f"the daemon did not answer `{frames.get_request_type(request)}` within {timeout:g} s", hint="see `tower status`"
            ) from None
        finally:
            self._pending.pop(request_id, None)
            self._update_reading()
        if not isinstance(answer, answer_type):
            raise errors.ProtocolViolation(
                f"the daemon answered `{frames.get_request_type(request)}` with {type(answer).__name__}"
            )
        return answer

    async def receive_event(self) -> frames.PushEvent:
        """Returns the next event in order of arrival. Raises `ConnectionLost` when no further event will arrive."""
        while not self._events:
            if self._close_reason is not None:
                raise self._close_reason
            self._event_arrived = asyncio.get_running_loop().create_future()
            await self._event_arrived
        event = self._events.popleft()
        self._update_reading()
        return event

    def close(self) -> None:
        self._end(errors.ConnectionLost("the connection was closed"))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        try:
            if whole:
                if self._partial:
                    whole[0] = b"".join((*self._partial, whole[0]))
                    self._partial.clear()
                    self._partial_bytes = 0
                for line in whole:
                    if line:
                        self._on_line(line)
            if rest:
                self._partial.append(rest)
                self._partial_bytes += len(rest)
                if self._partial_bytes > MAX_LINE_BYTES:
                    raise errors.ProtocolViolation(f"the daemon sent a line longer than {MAX_LINE_BYTES} bytes")
        except errors.ProtocolViolation as problem:
            self._end(problem)
        self._update_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(errors.ConnectionLost("the daemon closed the connection"))

    def _on_line(self, line: bytes) -> None:
        incoming = frames.decode_frame(line)
        if incoming.kind == "event":
            if self._keep_events:
                self._events.append(frames.decode_event(incoming, line))
                self._wake()
        elif (answered := self._pending.get(incoming.requestId or "")) and not answered.done():
            try:
                answered.set_result(frames.decode_answer(incoming))
            except errors.ClientError as problem:
                answered.set_exception(problem)

    def _update_reading(self) -> None:
        """Pauses reading while the queue is full. While a request is pending it keeps reading, because the answer may be behind
        the events."""
        if self._transport is None or self._close_reason is not None:
            return
        waiting = len(self._events)
        if self._reading and waiting >= self._keep_events > 0 and not self._pending:
            self._reading = False
            self._transport.pause_reading()
        elif not self._reading and (waiting <= self._keep_events // 2 or self._pending):
            self._reading = True
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._event_arrived is not None and not self._event_arrived.done():
            self._event_arrived.set_result(None)

    def _end(self, reason: errors.ClientError) -> None:
        if self._close_reason is not None:
            return
        self._close_reason = reason
        if self._transport is not None:
            self._transport.abort()
        for answered in self._pending.values():
            if not answered.done():
                answered.set_exception(reason)
        self._wake()
