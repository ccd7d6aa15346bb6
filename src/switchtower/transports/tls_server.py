"""A listening port for TLS. A connection counts against the limit before its handshake starts, so that clients that never finish
one are bounded in total and by address like all others without a token.

The event loop's own server accepts and does the handshake before it calls a protocol; so here the sockets are accepted one by
one.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from switchtower.transports.connection_limit import ConnectionLimit

_log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10.0
_RETRY_SECONDS = 1.0


class Handshake:
    """A connection whose handshake is not done yet; the limit identifies the connection by it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._task: asyncio.Task[None] | None = None

    def start(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def write(self, data: bytes) -> None:
        """Sends nothing: a client that expects TLS cannot read a refusal in plain HTTP."""

    def close(self) -> None:
        assert self._task is None, "only a connection that is refused at once is closed here"
        self._sock.close()

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()


class TlsServer:
    """The part of `asyncio.Server` that a listener needs."""

    def __init__(
        self,
        sockets: list[socket.socket],
        context: ssl.SSLContext,
        make_connection: Callable[[Handshake], asyncio.Protocol],
        limit: ConnectionLimit | None,
        handshakes: set[asyncio.Task[None]],
    ) -> None:
        """`make_connection` makes the protocol that takes over after the handshake. `handshakes` holds the tasks of those that
        are not done, which the owner of this server cancels in the end.
        """
        self.sockets = sockets
        self._context = context
        self._make_connection = make_connection
        self._limit = limit
        self._handshakes = handshakes
        self._accepting = [asyncio.get_running_loop().create_task(self._accept(listening)) for listening in sockets]

    def close(self) -> None:
        for task in self._accepting:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listening in self.sockets:
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listening)
            except OSError as problem:
                if problem.errno != errno.ECONNABORTED:  # that client has already closed its connection
                    _log.warning("cannot accept a connection: %s", problem.strerror)
                    await asyncio.sleep(_RETRY_SECONDS)
                continue
            handshake = Handshake(sock)
            if self._limit is None or self._limit.admit(handshake, str(address[0])):
                task = loop.create_task(self._shake_hands(sock, handshake))
                handshake.start(task)
                self._handshakes.add(task)
                task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, sock: socket.socket, handshake: Handshake) -> None:
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make_connection(handshake), sock, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        except OSError as problem:
            _log.debug("a TLS handshake failed: %s", problem)
        finally:
            if self._limit is not None:
                self._limit.release(handshake)


async def bind_socket(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Returns a listening socket for each address of `host`. Raises `OSError`."""
    found: list[tuple[Any, ...]] = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            sockets.append(socket.create_server(address, family=family, backlog=backlog))
            sockets[-1].setblocking(False)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets
