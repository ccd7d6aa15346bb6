"""Limits the number of TCP connections, in total and before they have presented a token, so that a flood of unauthenticated
clients leaves descriptors for the owner's sockets and capacity for users.

A connection counts as unknown until it is authenticated. Unknown clients share half of all slots, and at most a few of them may
have one address. When their slots are taken, the one that has waited longest is evicted, unless all have only just connected:
then the new one is refused. While more than half of them are taken, an unknown client gets less time for its request.

Reserves stdin and stdout for a protocol. From then on a stray print goes to stderr, and no other code reads the input."""

import fcntl
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from switchtower.transports import origins

_FIRST_PRIVATE = 3
"""The descriptors below are the standard ones. One of them may be closed, and a copy must not take its number."""


def claim_stdio() -> tuple[int, int]:
    """Returns private descriptors of stdin and stdout, in this order; no child inherits them. Raises OSError when one is not
    open.
    """
    claimed_input = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, _FIRST_PRIVATE)
    try:
        claimed_output = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _FIRST_PRIVATE)
    except OSError:
        os.close(claimed_input)
        raise
    nowhere = os.open(os.devnull, os.O_RDWR)  # takes the place of stderr if there is none
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    if nowhere >= _FIRST_PRIVATE:
        os.close(nowhere)
    return claimed_input, claimed_output


class StdoutRedirect:
    """Redirects stdout and stderr to the reader of our stderr without ever blocking: output that does not fit is dropped. Make it
    after `claim_stdio`, and close it, so that the last output is still written.
    """

    _PIECE = 4096
    """The bytes that a pipe accepts at once when it is ready for writing."""
    _PATIENCE_MS = 1000
    """The wait for a slow reader. One that has not read for so long is not waited for again until there is space."""

    def __init__(self) -> None:
        import _thread

        self._outside = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, _FIRST_PRIVATE)
        self._inside, entrance = os.pipe()
        self._redirect_to(entrance)
        os.close(entrance)
        self._running = _thread.allocate_lock()
        self._running.acquire()
        _thread.start_new_thread(self._copy_output, ())

    def close(self) -> None:
        """A process that we started and that lives on may still hold the write end, and is not waited for."""
        self._redirect_to(self._outside)
        self._running.acquire(timeout=2 * self._PATIENCE_MS / 1000)

    def _redirect_to(self, descriptor: int) -> None:
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)

    def _copy_output(self) -> None:
        import select

        room = select.poll()
        room.register(self._outside, select.POLLOUT)
        patience = self._PATIENCE_MS
        try:
            while piece := os.read(self._inside, self._PIECE):
                ready = room.poll(patience)
                patience = self._PATIENCE_MS if ready else 0
                if ready:
                    os.write(self._outside, piece)
        except OSError:
            # The reader has closed. Reading on keeps the writers from blocking.
            while os.read(self._inside, self._PIECE):
                pass
        finally:
            self._running.release()


_log = logging.getLogger(__name__)

RESERVED_DESCRIPTORS = 80
"""Descriptors for the owner's sockets, the journal and the processes of runs."""
FEWEST = 16
"""The number of connections that are possible however few descriptors there are."""
PRESSED_SECONDS = 5.0
"""The seconds that an unknown client may wait while more than half of the slots for unknown clients are taken."""
SETTLING_SECONDS = 1.0
"""An unknown client that connected less than this many seconds ago keeps its slot."""
_LOG_EVERY_SECONDS = 60.0

BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 5\r\n"
    b"Content-Length: 39\r\nConnection: close\r\n\r\ntoo many connections; try again later\r\n"
)


def compute_capacity(wanted: int = 0) -> int:
    """Returns how many connections the process's descriptors allow, beside the open and the reserved ones. `wanted` is the
    maximum; 0 takes all.
    """
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = 1_000_000 if soft == resource.RLIM_INFINITY else max(soft - _count_open_descriptors() - RESERVED_DESCRIPTORS, FEWEST)
    return min(wanted or room, room)


def _count_open_descriptors() -> int:
    try:
        return len(list(Path("/proc/self/fd").iterdir()))
    except OSError:
        return 32


class LimitedConnection(Protocol):
    """A transport, or a TLS handshake that has no transport yet."""

    def write(self, data: bytes, /) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class _UnknownClient:
    __slots__ = ("place", "since")

    def __init__(self, place: str, since: float) -> None:
        self.place = place
        self.since = since


class ConnectionLimit:
    """The limit for all ports of the daemon together. A connection is identified by its transport, or by its TLS handshake until
    that is done.
    """

    def __init__(
        self,
        total: int,
        per_address: int,
        *,
        is_shared: Callable[[str], bool] = lambda _: False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_shared` returns whether many clients share an address, such as a proxy's: the limit by address does not apply
        there.
        """
        self._total = total
        self._most_unknown = max(total // 2, 1)
        self._per_address = per_address
        self._is_shared = is_shared
        self._now = now
        self._unknown: OrderedDict[LimitedConnection, _UnknownClient] = OrderedDict()
        """The unknown clients; the one that has waited longest comes first."""
        self._by_place: dict[str, OrderedDict[LimitedConnection, None]] = {}
        self._known: set[LimitedConnection] = set()
        self._refused_count = 0
        self._logged_at = -_LOG_EVERY_SECONDS

    def __len__(self) -> int:
        return len(self._unknown) + len(self._known)

    def admit(self, transport: LimitedConnection, address: str) -> bool:
        """Returns whether there is a slot for a new connection, or it has one. A refused connection was answered, and is being
        closed.
        """
        if transport in self._unknown:
            return True
        place = origins.group_address(address)
        if len(self._unknown) > self._most_unknown // 2:
            self._evict_oldest()
        alike = self._by_place.get(place) or OrderedDict()
        crowded = not origins.is_loopback(address) and not self._is_shared(address) and len(alike) >= self._per_address
        full = len(self._unknown) >= self._most_unknown or len(self) >= self._total
        if (crowded and not self._evict(next(iter(alike)))) or (full and not self._evict(next(iter(self._unknown), None))):
            self._log_refusals()
            transport.write(BUSY)
            transport.close()
            return False
        self._add(transport, place)
        return True

    def replace(self, handshake: LimitedConnection, transport: LimitedConnection) -> None:
        """Replaces a TLS handshake that is done by the connection's transport. The connection keeps its slot, and its time starts
        from zero.
        """
        if stranger := self._unknown.get(handshake):
            self._forget(handshake)
            self._add(transport, stranger.place)

    def authenticate(self, transport: LimitedConnection) -> None:
        """Marks the connection as authenticated: it no longer counts as unknown."""
        if self._forget(transport):
            self._known.add(transport)

    def renew(self, transport: LimitedConnection) -> None:
        """Restarts the connection's time after an answer: it may send another request."""
        if stranger := self._unknown.get(transport):
            stranger.since = self._now()
            self._unknown.move_to_end(transport)
            self._by_place[stranger.place].move_to_end(transport)

    def release(self, transport: LimitedConnection) -> None:
        self._forget(transport)
        self._known.discard(transport)

    def _evict_oldest(self) -> None:
        while self._unknown and self._evict(next(iter(self._unknown)), PRESSED_SECONDS):
            pass

    def _evict(self, transport: LimitedConnection | None, least_age: float = SETTLING_SECONDS) -> bool:
        """Returns whether it had waited so long that its slot was taken from it."""
        if transport is None or self._now() - self._unknown[transport].since < least_age:
            return False
        self._log_refusals()
        self._forget(transport)
        transport.abort()
        return True

    def _add(self, transport: LimitedConnection, place: str) -> None:
        self._unknown[transport] = _UnknownClient(place, self._now())
        self._by_place.setdefault(place, OrderedDict())[transport] = None

    def _forget(self, transport: LimitedConnection) -> bool:
        stranger = self._unknown.pop(transport, None)
        if stranger is None:
            return False
        alike = self._by_place[stranger.place]
        del alike[transport]
        if not alike:
            del self._by_place[stranger.place]
        return True

    def _log_refusals(self) -> None:
        self._refused_count += 1
        if self._now() - self._logged_at >= _LOG_EVERY_SECONDS:
            self._logged_at = self._now()
            _log.warning(
                "too many connections without a token: %d of %d places are taken; %d were turned away so far",
                len(self._unknown),
                self._most_unknown,
                self._refused_count,
            )
