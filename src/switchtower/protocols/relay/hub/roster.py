"""The hosts that are connected right now: how to reach one, and what it was asked and has not answered. Hosts of other nodes are
reached as well, where there are any."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from switchtower.protocols.relay import errors, messages, outbound
from switchtower.transports.outbox import Outbox
from switchtower.transports.packet import Packet
from switchtower.transports.stream import Stream

log = logging.getLogger(__name__)

MOST_PENDING = 1_000
"""Questions to one host that it has not answered."""
REPLACED = 4000
"""Close code for a socket whose host has come with a new one."""
REMOVED = 4001
"""Close code for a host that is no longer welcome."""

Posted = Callable[[errors.Refused | None], None]
"""Told why a message will not arrive, or that it is on its way."""


class Line(Protocol):
    """How to speak to one host."""

    def post(self, frame: bytes, done: Posted) -> None: ...

    async def call(self, frame: bytes, request_id: str, timeout_s: float | None) -> messages.Response:
        """Sends an RPC and waits for its answer. Raises `Refused`."""
        ...


class Far(Protocol):
    """The hosts that are connected to other nodes."""

    def __contains__(self, host_id: str) -> bool: ...

    def line(self, host_id: str) -> Line | None: ...

    def took(self, host_id: str) -> None:
        """It is connected here now."""
        ...

    def lost(self, host_id: str) -> None:
        """It is not connected here any more."""
        ...

    def cut(self, host_id: str, reason: str) -> None: ...


class HostLine:
    """One host's socket, as the hub speaks into it."""

    def __init__(self, host_id: str, stream: Stream) -> None:
        self.host_id = host_id
        self.stream = stream
        self.outbox = Outbox(stream)
        self._pending: dict[str, asyncio.Future[messages.Response]] = {}

    def send(self, frame: bytes) -> None:
        self.outbox.send(Packet([frame]))

    def post(self, frame: bytes, done: Posted) -> None:
        self.send(frame)
        done(None)

    async def call(self, frame: bytes, request_id: str, timeout_s: float | None) -> messages.Response:
        if request_id in self._pending:
            raise errors.Refused(errors.IN_USE)
        if len(self._pending) >= MOST_PENDING:
            raise errors.Refused("too many calls wait for this host")
        answer: asyncio.Future[messages.Response] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = answer
        self.send(frame)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise errors.HostOffline(errors.HOST_SILENT) from None
        finally:
            self._pending.pop(request_id, None)

    def answered(self, response: messages.Response) -> None:
        answer = self._pending.get(response.request_id)
        if answer is not None and not answer.done():
            answer.set_result(response)

    def gone(self) -> None:
        """Whoever waits for an answer is told at once that none will come."""
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(errors.HostOffline(errors.HOST_GONE))


class Roster:
    def __init__(self, far: Far | None = None) -> None:
        """`far` is None when there are no other nodes."""
        self._lines: dict[str, HostLine] = {}
        self._far = far

    def __contains__(self, host_id: str) -> bool:
        return host_id in self._lines or (self._far is not None and host_id in self._far)

    def add(self, line: HostLine) -> None:
        """A new socket of the same host takes the place of the old one, which is told so."""
        old = self._lines.get(line.host_id)
        self._lines[line.host_id] = line
        if old is not None:
            log.info("host %s has come with a new connection", line.host_id)
            _replace(old)
        if self._far is not None:
            self._far.took(line.host_id)

    def replaced_elsewhere(self, host_id: str) -> None:
        """It has come to another node since."""
        if (old := self._lines.pop(host_id, None)) is not None:
            log.info("host %s has come to another node", host_id)
            _replace(old)
            if self._far is not None:
                self._far.lost(host_id)

    def drop(self, line: HostLine) -> bool:
        """Whether it was this host's line. The end of an old socket does not touch the new one's."""
        line.gone()
        if self._lines.get(line.host_id) is not line:
            return False
        del self._lines[line.host_id]
        if self._far is not None:
            self._far.lost(line.host_id)
        return True

    def here(self, host_id: str) -> HostLine | None:
        return self._lines.get(host_id)

    def line(self, host_id: str) -> Line:
        found: Line | None = self._lines.get(host_id)
        if found is None and self._far is not None:
            found = self._far.line(host_id)
        if found is None:
            raise errors.HostOffline()
        return found

    def let_go(self, code: int, reason: str) -> None:
        """All that are connected here."""
        for line in tuple(self._lines.values()):
            line.stream.close(code, reason)

    def cut(self, host_id: str, reason: str) -> None:
        self.cut_here(host_id, reason)
        if self._far is not None:
            self._far.cut(host_id, reason)

    def cut_here(self, host_id: str, reason: str) -> None:
        if line := self._lines.get(host_id):
            line.stream.close(REMOVED, reason)


def _replace(line: HostLine) -> None:
    line.gone()
    line.stream.close(REPLACED, "replaced by a new connection")


def command(type_: str, now_ms: int, *, host_id: str, run_id: str | None, data: dict[str, Any]) -> bytes:
    """A message for a host."""
    return outbound.unnumbered(type_, now_ms, data, run_id=run_id, host_id=host_id)
