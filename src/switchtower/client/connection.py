"""One connection to the daemon: lines in and out, answers to those who asked, events into a bounded queue.

A connection that keeps events stops reading while its queue is full, so the daemon pages instead of this process growing.
For that reason requests that must go through at any time belong on a connection that keeps none. It never reconnects.
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
LONGEST_LINE = 64 * 1_048_576

Answer = TypeVar("Answer", bound=Struct)


class Connection(asyncio.Protocol):
    def __init__(self, *, keep_events: int = 0) -> None:
        """Up to `keep_events` events wait to be taken; with 0 they are dropped unread."""
        self._keep_events = keep_events
        self._events: deque[frames.Event] = deque()
        self._event_arrived: asyncio.Future[None] | None = None
        self._asked: dict[str, asyncio.Future[Struct]] = {}
        self._numbers = itertools.count(1)
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self._reading = True
        self._transport: asyncio.Transport | None = None
        self._ended: errors.ClientError | None = None
        self.greeting: messages.HelloAnswer | None = None
        """The daemon's answer to `hello`."""

    @classmethod
    async def open(cls, socket: Path, *, keep_events: int = 0) -> "Connection":
        """Raises OSError when nobody listens there."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_unix_connection(lambda: cls(keep_events=keep_events), str(socket))
        return connection

    @property
    def is_open(self) -> bool:
        return self._ended is None

    async def request(
        self,
        request: frames.Request,
        answer_type: type[Answer],
        *,
        session_id: str | None = None,
        within: float = REQUEST_TIMEOUT,
    ) -> Answer:
        """Raises `RequestFailed`, or `ConnectionLost` when the answer did not come."""
        if self._ended is not None or self._transport is None:
            raise self._ended or errors.ConnectionLost("the connection is not open")
        request_id = f"req_{next(self._numbers)}"
        answered: asyncio.Future[Struct] = asyncio.get_running_loop().create_future()
        self._asked[request_id] = answered
        self._flow()
        self._transport.write(frames.encode(request_id, request, session_id))
        try:
            async with asyncio.timeout(within):
                answer = await answered
        except TimeoutError:
            raise errors.ConnectionLost(
                f"the daemon did not answer `{frames.type_of(request)}` within {within:g} s", hint="see `tower status`"
            ) from None
        finally:
            self._asked.pop(request_id, None)
            self._flow()
        if not isinstance(answer, answer_type):
            raise errors.ProtocolViolation(f"the daemon answered `{frames.type_of(request)}` with {type(answer).__name__}")
        return answer

    async def next_event(self) -> frames.Event:
        """The next event in the order of arrival. Raises `ConnectionLost` when there will be none."""
        while not self._events:
            if self._ended is not None:
                raise self._ended
            self._event_arrived = asyncio.get_running_loop().create_future()
            await self._event_arrived
        event = self._events.popleft()
        self._flow()
        return event

    def close(self) -> None:
        self._end(errors.ConnectionLost("the connection was closed"))

    # asyncio's side

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
                        self._line_received(line)
            if rest:
                self._partial.append(rest)
                self._partial_bytes += len(rest)
                if self._partial_bytes > LONGEST_LINE:
                    raise errors.ProtocolViolation(f"the daemon sent a line longer than {LONGEST_LINE} bytes")
        except errors.ProtocolViolation as problem:
            self._end(problem)
        self._flow()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(errors.ConnectionLost("the daemon closed the connection"))

    def _line_received(self, line: bytes) -> None:
        incoming = frames.decode(line)
        if incoming.kind == "event":
            if self._keep_events:
                self._events.append(frames.event(incoming, line))
                self._wake()
        elif (answered := self._asked.get(incoming.requestId or "")) and not answered.done():
            try:
                answered.set_result(frames.answer(incoming))
            except errors.ClientError as problem:
                answered.set_exception(problem)

    def _flow(self) -> None:
        """Reads on unless the queue is full. While an answer is awaited it reads on regardless: it may be behind the events."""
        if self._transport is None or self._ended is not None:
            return
        waiting = len(self._events)
        if self._reading and waiting >= self._keep_events > 0 and not self._asked:
            self._reading = False
            self._transport.pause_reading()
        elif not self._reading and (waiting <= self._keep_events // 2 or self._asked):
            self._reading = True
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._event_arrived is not None and not self._event_arrived.done():
            self._event_arrived.set_result(None)

    def _end(self, reason: errors.ClientError) -> None:
        if self._ended is not None:
            return
        self._ended = reason
        if self._transport is not None:
            self._transport.abort()
        for answered in self._asked.values():
            if not answered.done():
                answered.set_exception(reason)
        self._wake()
