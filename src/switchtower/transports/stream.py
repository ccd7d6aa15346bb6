"""The two sides of a connection: a `Stream` carries frames to one client, a `Receiver` is told what comes from it.

A receiver is called on the event loop and must return quickly. A stream never buffers without bound: when the client does
not read, `writable` turns false, and whoever goes on sending regardless is the one who breaks the promise.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from msgspec import Struct

from switchtower.transports.packet import Packet

OversizedMessage = Callable[[int, int], str]
"""What a client is told of a frame that was thrown away, from the frame's size and the limit."""


class ConnectionOrigin(Struct, frozen=True):
    """Where a connection comes from, as far as the transport itself can vouch for it."""

    transport: str
    """`unix`, `websocket`, `http`, `stdio`, `mesh` or `memory`."""
    address: str = ""
    reached_at: str = ""
    """Our own end of a TCP connection, spelled as `address` is."""
    token: str | None = None
    """The token that a WebSocket came with, if any."""

    is_page: bool = False
    """A browser's page asks: the request has an `Origin`. Then the uid of the process says nothing about who asks."""

    client: str = ""
    """The client's address by the word of a trusted proxy, without a port; empty where the connection is the client's own."""
    pid: int | None = None
    """The process at the other end, where the transport tells; 0 for one of another PID namespace."""
    pid_started_at: int | None = None
    """When it was started, in the kernel's own ticks: a later process with the same pid has another time."""

    @property
    def machine(self) -> str:
        """The client's address without its port, where a trusted proxy names it that one; `local` where only a process of this
        machine can be at the other end."""
        if self.transport in ("unix", "stdio"):
            return "local"
        return self.client or self.address.rpartition(":")[0].strip("[]") or self.address

    def __repr__(self) -> str:
        """Without the token: an origin may be logged, a secret may not."""
        return f"Origin(transport={self.transport!r}, address={self.address!r})"


class Stream(Protocol):
    origin: ConnectionOrigin
    writable: bool
    """False from the moment the output buffer is full until it has drained."""

    def send(self, packet: Packet) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Flushes what was sent, then closes. Code and reason are told where the transport has words for them."""
        ...

    def abort(self) -> None: ...


class Receiver(Protocol):
    def on_connected(self, stream: Stream) -> None: ...

    def on_frames(self, frames: list[bytes]) -> None:
        """The whole frames of one read, so that their answers can leave together."""
        ...

    def on_oversized_frame(self, problem: str) -> None:
        """A frame was thrown away because of its size; the connection goes on after it."""
        ...

    def on_writable(self) -> None: ...

    def on_disconnected(self) -> None: ...


@runtime_checkable
class RespondingReceiver(Protocol):
    """A receiver that knows whether it still owes answers. A client that has stopped writing is kept as long as it does."""

    def has_pending_responses(self) -> bool: ...
