"""An HTTP server inside the loop that already runs: uvicorn's protocol, an ASGI app for pages, WebSockets for the rest.

Takes no signals and configures no logging. Query strings carry tokens, so there is no access log, and uvicorn's loggers are
kept above the level at which it would write whole requests.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections.abc import Collection
from email.utils import formatdate
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from switchtower.transports import errors, websocket

_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
"""Where to connect when all interfaces are listened on."""


class HttpListener:
    """A listening port and the connections that came through it."""

    def __init__(self, server: asyncio.Server, state: "_State", lifespan: Any) -> None:
        host, self.port = server.sockets[0].getsockname()[:2]
        host = _REACHED_AT.get(host, host)
        self.url = f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
        self.websocket_url = self.url.replace("http", "ws", 1)
        self._server = server
        self._state = state
        self._lifespan = lifespan
        self._closed = False

    async def close(self, *, grace: float = 5.0) -> None:
        """Stops listening, lets answers under way finish and says goodbye; cuts off what is left after `grace` seconds."""
        if self._closed:
            return
        self._closed = True
        self._server.close()
        connections, tasks = self._state.connections, self._state.tasks
        for connection in tuple(connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await connections.all_gone()
        for connection in tuple(connections):
            connection.transport.abort()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await connections.all_gone()
        await self._server.wait_closed()
        await self._lifespan.shutdown()


async def serve(
    app: Any,
    host: str,
    port: int,
    accept: websocket.Accept,
    *,
    max_message_bytes: int,
    output_limit_bytes: int,
    hosts: Collection[str] = (),
    ping_seconds: float = 30.0,
) -> HttpListener:
    """Listens at `host:port`; port 0 picks a free one. Raises an `errors.CannotListen` that says what stands in the way.

    `hosts` are names, besides `host` and loopback's, under which clients may reach us.
    """
    door = websocket.Door(
        accept=accept,
        hosts=frozenset(name.lower() for name in (host, *hosts)),
        max_message_bytes=max_message_bytes,
        output_limit_bytes=output_limit_bytes,
        ping_seconds=ping_seconds,
    )
    config = Config(
        app,
        ws=cast(Any, websocket.protocol(door)),
        interface="asgi3",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    config.load()
    lifespan = config.lifespan_class(config)
    await lifespan.startup()
    if lifespan.should_exit:
        raise RuntimeError("the app could not start")
    state = _State()

    def connection() -> asyncio.Protocol:
        build: Any = config.http_protocol_class
        built: asyncio.Protocol = build(config=config, server_state=state, app_state=lifespan.state)
        return built

    try:
        server = await asyncio.get_running_loop().create_server(connection, host, port)
    except OSError as problem:
        await lifespan.shutdown()
        raise _explained(problem, host, port) from problem
    return HttpListener(server, state, lifespan)


def _explained(problem: OSError, host: str, port: int) -> errors.CannotListen:
    if problem.errno == errno.EADDRINUSE:
        return errors.AddressInUse(f"{host}:{port}", hint="stop that process, or choose another port (0 picks a free one)")
    if problem.errno == errno.EACCES:
        return errors.AddressUnusable(f"{host}:{port} needs rights that we lack", hint="choose a port above 1023")
    if isinstance(problem, socket.gaierror) or problem.errno == errno.EADDRNOTAVAIL:
        return errors.AddressUnusable(f"{host}:{port} is not an address of this machine", hint="use `127.0.0.1`")
    return errors.AddressUnusable(f"{host}:{port}, {problem.strerror or problem}", hint="choose another address")


class _Connections(set[Any]):
    """uvicorn's set of connections, with a way to wait until it is empty."""

    def __init__(self) -> None:
        super().__init__()
        self._emptied = asyncio.Event()

    def discard(self, connection: Any) -> None:
        super().discard(connection)
        if not self:
            self._emptied.set()

    async def all_gone(self) -> None:
        while self:
            self._emptied.clear()
            await self._emptied.wait()


class _State(ServerState):
    """What uvicorn's connections share. Its own server wakes ten times a second to keep the date; here it is made when needed."""

    connections: _Connections

    def __init__(self) -> None:
        self.total_requests = 0
        self.connections = _Connections()
        self.tasks = set()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:  # type: ignore[override]
        return [(b"date", formatdate(time.time(), usegmt=True).encode())]
