"""An HTTP server in the running event loop: uvicorn's protocol, an ASGI app for pages, WebSockets for the rest.

It listens at a port, or at a Unix socket that only its owner can reach. An app finds the other end as `peer` in the state of its
scope. The server takes no signals and configures no logging. Query strings contain tokens, so there is no access log, and
uvicorn's loggers are kept above the level at which it would write whole requests.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, MutableMapping
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import h11
from h11._receivebuffer import ReceiveBuffer
from msgspec import Struct
from uvicorn.config import Config
from uvicorn.server import ServerState

from switchtower.transports import stream, unix, ws_server
from switchtower.transports.connection_limit import ConnectionLimit
from switchtower.transports.origins import NO_PROXIES, AllowedOrigins, TrustedProxies, strip_port
from switchtower.transports.stream import ConnectionOrigin

if TYPE_CHECKING:
    import ssl

    from switchtower.transports.tls_server import Handshake, TlsServer

_log = logging.getLogger(__name__)

_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
"""The address to connect to when the server listens on all interfaces."""
_ROOT = 0
HEAD_SECONDS = 30.0
"""The seconds that a client may take to send a request's head."""

BACKLOG = 32
"""The connections that wait to be accepted: each becomes a descriptor at once, before it is counted."""

FindOrigin = Callable[[asyncio.Transport], ConnectionOrigin | None]
"""Returns the origin of a connection; None when the client is not served."""


class Attribution(Struct, frozen=True):
    """The owner of the process at the other end: the daemon's owner when neither is set."""

    run_id: str | None = None
    refused: bool = False
    """The owner cannot be determined."""


class HttpPeer:
    """The other end of a connection, for as long as that lasts."""

    __slots__ = ("attribution", "authenticate", "origin", "proxies")

    def __init__(self, origin: ConnectionOrigin, proxies: TrustedProxies, authenticate: Callable[[], None]) -> None:
        """`proxies` are those whose headers name the origin of a request. `authenticate` is called when a token was presented:
        the connection then no longer counts as unknown.
        """
        self.origin = origin
        self.proxies = proxies
        self.authenticate = authenticate
        self.attribution: Attribution | None = None
        """The protocol that determined it caches it here, so that it is determined once."""


class _Listener:
    """A listening socket, and the connections that it accepted."""

    def __init__(self, server: "asyncio.AbstractServer | TlsServer", site: "_ServedApp") -> None:
        self._server = server
        self._site = site
        self._closed = False

    async def close(self, *, grace: float = 5.0) -> None:
        """Stops listening, lets pending responses finish and closes the connections; aborts those that are left after `grace`
        seconds.
        """
        if self._closed:
            return
        self._closed = True
        self._stop_listening()
        connections, tasks = self._site.state.connections, self._site.state.tasks
        for connection in tuple(connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await connections.wait_until_empty()
        for connection in tuple(connections):
            connection.transport.abort()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await connections.wait_until_empty()
        await self._server.wait_closed()
        await self._site.lifespan.shutdown()

    def _stop_listening(self) -> None:
        self._server.close()


class HttpListener(_Listener):
    """A listening port."""

    def __init__(self, server: "asyncio.Server | TlsServer", site: "_ServedApp", scheme: str = "http") -> None:
        super().__init__(server, site)
        host, self.port = server.sockets[0].getsockname()[:2]
        self.listening = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        """The address that the port is bound to; this machine reaches it at `url`."""
        host = _REACHED_AT.get(host, host)
        self.url = f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"
        self.websocket_url = self.url.replace("http", "ws", 1)


class UnixHttpListener(_Listener):
    """A listening Unix socket."""

    def __init__(self, server: asyncio.AbstractServer, site: "_ServedApp", path: Path, file: unix.FileIdentity) -> None:
        super().__init__(server, site)
        self.path = path
        self._file = file

    def _stop_listening(self) -> None:
        unix.remove_if_ours(self.path, self._file)
        super()._stop_listening()


async def serve(
    app: Any,
    host: str,
    port: int,
    accept: ws_server.Accept,
    *,
    max_message_bytes: int,
    output_limit_bytes: int,
    hosts: Collection[str] = (),
    sites: AllowedOrigins | None = None,
    ping_seconds: float = 30.0,
    head_seconds: float = HEAD_SECONDS,
    limit: ConnectionLimit | None = None,
    proxies: TrustedProxies = NO_PROXIES,
    tls: "ssl.SSLContext | None" = None,
) -> HttpListener:
    """Listens at `host:port`; port 0 picks a free one. Raises an `errors.CannotListen` with the cause.

    `limit` bounds the number of connections; `proxies` are those whose headers name the origin of a request. `hosts` are names,
    besides `host`, loopback's and those of `sites`, under which clients may reach us; `sites` are the pages that may connect.
    With `tls` the port accepts TLS and nothing else.
    """
    sites = sites or AllowedOrigins()
    app = app if tls is None else _OverTls(app)
    door = ws_server.WebSocketOptions(
        accept=accept,
        hosts=frozenset(name.lower() for name in (host, *hosts, *sites.names)),
        sites=sites,
        max_message_bytes=max_message_bytes,
        output_limit_bytes=output_limit_bytes,
        ping_seconds=ping_seconds,
        limit=limit,
        proxies=proxies,
    )
    site = await _ServedApp.start(app, ws_server.make_protocol(door), _find_port_origin, head_seconds, limit, proxies)
    server: asyncio.Server | TlsServer
    try:
        if tls is None:
            server = await asyncio.get_running_loop().create_server(site.make_connection, host, port, backlog=BACKLOG)
        else:
            server = await _serve_tls(site, host, port, tls, limit)
    except OSError as problem:
        await site.lifespan.shutdown()
        raise _translate_listen_error(problem, host, port) from problem
    return HttpListener(server, site, "http" if tls is None else "https")


async def _serve_tls(
    site: "_ServedApp", host: str, port: int, tls: "ssl.SSLContext", limit: ConnectionLimit | None
) -> "TlsServer":
    from switchtower.transports import tls_server

    def make_connection(handshake: "Handshake") -> asyncio.Protocol:
        return site.make_connection(handshake)

    sockets = await tls_server.bind_socket(host, port, BACKLOG)
    return tls_server.TlsServer(sockets, tls, make_connection, limit, site.state.tasks)


class _OverTls:
    """Sets `X-Forwarded-Proto` to the real scheme, so that a client cannot forge it."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            others = [(name, value) for name, value in scope["headers"] if name != b"x-forwarded-proto"]
            scope = {**scope, "headers": [*others, (b"x-forwarded-proto", b"https")]}
        await self._app(scope, receive, send)


async def serve_unix(
    app: Any, path: Path, *, owner_uid: int | None = None, head_seconds: float = HEAD_SECONDS
) -> UnixHttpListener:
    """Listens at `path`, without WebSockets. Raises an `errors.CannotListen` with the cause.

    Only processes of `owner_uid` (by default the user of this process) and of root may connect.
    """
    owner = os.geteuid() if owner_uid is None else owner_uid

    def from_socket(transport: asyncio.Transport) -> ConnectionOrigin | None:
        return unix.find_origin(transport, path, owner)

    sock, file = unix.bind_private(path)
    try:
        site = await _ServedApp.start(app, None, from_socket, head_seconds)
        server = await asyncio.get_running_loop().create_unix_server(site.make_connection, sock=sock)
    except BaseException:
        sock.close()
        unix.remove_if_ours(path, file)
        raise
    return UnixHttpListener(server, site, path, file)


def _find_port_origin(transport: asyncio.Transport) -> ConnectionOrigin:
    theirs, ours = (transport.get_extra_info(end) for end in ("peername", "sockname"))
    return ConnectionOrigin(transport="http", address=_format_end(theirs), reached_at=_format_end(ours))


def _format_end(end: Any) -> str:
    return f"{end[0]}:{end[1]}" if isinstance(end, tuple) else ""


class _ServedApp:
    """An app that has started, and a factory for its connections."""

    def __init__(
        self,
        config: Config,
        lifespan: Any,
        find_origin: FindOrigin,
        head_seconds: float,
        limit: ConnectionLimit | None,
        proxies: TrustedProxies,
    ) -> None:
        self.lifespan = lifespan
        self.state = _State()
        self._config = config
        self._class = _make_connection_class(cast(Any, config.http_protocol_class), find_origin, head_seconds, limit, proxies)

    @classmethod
    async def start(
        cls,
        app: Any,
        ws: Any,
        find_origin: FindOrigin,
        head_seconds: float,
        limit: ConnectionLimit | None = None,
        proxies: TrustedProxies = NO_PROXIES,
    ) -> "_ServedApp":
        config = Config(
            app,
            http="h11",
            ws="none" if ws is None else ws,
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
        return cls(config, lifespan, find_origin, head_seconds, limit, proxies)

    def make_connection(self, handshake: "Handshake | None" = None) -> asyncio.Protocol:
        """`handshake` holds the connection's slot in the limit until it is made."""
        made: Any = self._class(config=self._config, server_state=self.state, app_state=self.lifespan.state)
        made.handshake = handshake
        return cast(asyncio.Protocol, made)


def _make_connection_class(
    base: Any, find_origin: FindOrigin, head_seconds: float, limit: ConnectionLimit | None, proxies: TrustedProxies
) -> Any:
    """Returns uvicorn's protocol, extended: it determines the origin, closes the connection when the client is not served or
    there are too many, and limits the time for a complete request.
    """

    class HttpConnection(base):  # type: ignore[misc]
        app_state: dict[str, Any]
        handshake: "Handshake | None" = None
        _refused = False
        _patience: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            origin = find_origin(transport)
            if origin is None:
                self._refused = True
                transport.abort()
                return
            if limit is not None and self.handshake is not None:
                limit.replace(self.handshake, transport)
            if limit is not None and not limit.admit(transport, strip_port(origin.address)):
                self._refused = True
                return
            authenticate = partial(limit.authenticate, transport) if limit is not None else _ignore_authentication
            self.app_state = {**self.app_state, "peer": HttpPeer(origin, proxies, authenticate)}
            self.conn._receive_buffer = _StrictBuffer()
            super().connection_made(transport)
            self._mind_the_time()

        def data_received(self, data: bytes) -> None:
            if not self._refused:
                super().data_received(data)
                self._mind_the_time()

        def connection_lost(self, exc: Exception | None) -> None:
            if not self._refused:
                if limit is not None:
                    limit.release(self.transport)
                self._stop_waiting()
                super().connection_lost(exc)

        def _mind_the_time(self) -> None:
            asked = self.cycle is not None and not self.cycle.response_complete
            if asked or self.transport.is_closing() or self.transport.get_protocol() is not self:
                self._stop_waiting()
            elif self._patience is None:
                if limit is not None and self.cycle is not None:
                    limit.renew(self.transport)
                self._patience = asyncio.get_running_loop().call_later(head_seconds, self.transport.abort)

        def _stop_waiting(self) -> None:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None

    return HttpConnection


class _StrictBuffer(ReceiveBuffer):
    """h11's buffer, in which only CRLF ends a line of a head or of trailers. h11 takes a bare LF too; a proxy in front of us may
    not, and would then see another request than we do (RFC 9112, 2.2 and 11.2)."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        before = bytes(self._data)
        lines = super().maybe_extract_lines()
        if lines is not None:
            head = before[: len(before) - len(self._data)]
            if head.count(b"\n") != head.count(b"\r\n"):
                raise h11.LocalProtocolError("a line ends without CR")
        return lines


def _ignore_authentication() -> None:
    """Does nothing, for a listener without a limit on connections."""


def _translate_listen_error(problem: OSError, host: str, port: int) -> stream.CannotListen:
    if problem.errno == errno.EADDRINUSE:
        return stream.AddressInUse(f"{host}:{port}", hint="stop that process, or choose another port (0 picks a free one)")
    if problem.errno == errno.EACCES:
        return stream.AddressUnusable(f"{host}:{port} needs rights that we lack", hint="choose a port above 1023")
    if isinstance(problem, socket.gaierror) or problem.errno == errno.EADDRNOTAVAIL:
        return stream.AddressUnusable(f"{host}:{port} is not an address of this machine", hint="use `127.0.0.1`")
    return stream.AddressUnusable(f"{host}:{port}, {problem.strerror or problem}", hint="choose another address")


class _Connections(set[Any]):
    """uvicorn's set of connections, with a way to wait until it is empty."""

    def __init__(self) -> None:
        super().__init__()
        self._emptied = asyncio.Event()

    def discard(self, connection: Any) -> None:
        super().discard(connection)
        if not self:
            self._emptied.set()

    async def wait_until_empty(self) -> None:
        while self:
            self._emptied.clear()
            await self._emptied.wait()


class _State(ServerState):
    """The state that uvicorn's connections share. Uvicorn's own server wakes ten times a second to update the date; here it is
    made when needed.
    """

    connections: _Connections

    def __init__(self) -> None:
        self.total_requests = 0
        self.connections = _Connections()
        self.tasks = set()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:  # type: ignore[override]
        return [(b"date", formatdate(time.time(), usegmt=True).encode())]
