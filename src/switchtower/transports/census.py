"""Who is connected to a listener right now, and how much waits to be sent to each. Only looks."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from switchtower.transports import unix
from switchtower.transports.stream import Receiver

if TYPE_CHECKING:
    from switchtower.transports.http import HttpListener


class ListenerConnection(NamedTuple):
    receiver: Receiver | None
    """None for one that asks for pages, or has not been let in yet."""
    waiting_bytes: int


def list_http_connections(listener: "HttpListener") -> Iterator[ListenerConnection]:
    for connection in tuple(listener._site.state.connections):
        transport = connection.transport
        receiver = getattr(connection, "_receiver", None)
        yield ListenerConnection(receiver, 0 if transport is None else transport.get_write_buffer_size())


def list_unix_connections(listener: unix.UnixListener) -> Iterator[ListenerConnection]:
    for connection in tuple(listener.connections):
        transport = getattr(connection, "_transport", None)  # neither is there before the client was let in
        receiver = getattr(connection, "_receiver", None)
        yield ListenerConnection(receiver, 0 if transport is None else transport.get_write_buffer_size())
