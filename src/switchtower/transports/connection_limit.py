"""Limits the number of TCP connections, in total and before they have presented a token, so that a flood of unauthenticated
clients leaves descriptors for the owner's sockets and capacity for users.

A connection counts as unknown until it is authenticated. Unknown clients share half of all slots, and at most a few of them may
have one address. When their slots are taken, the one that has waited longest is evicted, unless all have only just connected:
then the new one is refused. While more than half of them are taken, an unknown client gets less time for its request.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from switchtower.transports import origins

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
