"""The pi protocol in the daemon: its server, its listeners and the stdio client.

The server is loaded when the first client connects, or when the daemon listens and is idle. Clients connect to pi's own port, to
a path of the HTTP port, or to one of the owner's Unix sockets: this module decides which clients are admitted; the protocol
limits their number and greets them.

The daemon's own stdin and stdout can be one client. When that input ends, the daemon stops, after the client's pending requests
are answered, as far as its receiver knows of them.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from switchtower import config
from switchtower.accounts.authenticators import ConnectionAuthenticator
from switchtower.core.ports import session_service
from switchtower.core.roles import Access, Role
from switchtower.protocols.pi.settings import PiSettings
from switchtower.settings import parsers
from switchtower.transports import socket_owner, stream, unix
from switchtower.transports.stream import ConnectionOrigin, Receiver, RespondingReceiver

if TYPE_CHECKING:
    import ssl

    from switchtower.protocols.pi.server import PiServer
    from switchtower.transports import upgrade
    from switchtower.transports.connection_limit import ConnectionLimit
    from switchtower.transports.http import HttpListener


class LazyPiServer:
    def __init__(self, service: session_service.SessionService, settings: config.Settings, version: str) -> None:
        self._service = service
        self._settings = settings
        self._version = version
        self.holds_lease: Callable[[], bool] | None = None
        """In a cluster: returns whether this node may still serve."""
        self._server: PiServer | None = None

    def get(self) -> "PiServer":
        if self._server is None:
            from switchtower.protocols.pi.server import PiServer

            settings = _make_pi_settings(self._settings)
            self._server = PiServer(self._service, settings, version=self._version, now_ms=_now_ms, holds_lease=self.holds_lease)
        return self._server

    async def load(self) -> None:
        await asyncio.to_thread(import_module, "switchtower.protocols.pi.server")
        self.get()

    async def shut_down(self, timeout_s: float) -> None:
        if self._server is not None:
            await self._server.shut_down(timeout_s)

    @property
    def is_idle(self) -> bool:
        """No client is connected, and no command is running."""
        return self._server is None or self._server.is_idle

    def discard(self, code: int, reason: str) -> Coroutine[None, None, None] | None:
        """Disconnects the clients at once; the next client gets a new server, which restores its state from the journal. Returns
        the cleanup that is left to do."""
        house, self._server = self._server, None
        if house is None:
            return None
        house.close_for_restart(code, reason)
        return house.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def get_working_directory() -> str:
    """Returns the folder in which we were started; a daemon that a command started is in the root folder, where no user works."""
    try:
        here = str(Path.cwd())
    except OSError:
        here = "/"
    return here if here != "/" else str(Path.home())


def _make_pi_settings(settings: config.Settings) -> PiSettings:
    return PiSettings(
        max_sessions=settings.pi_max_sessions,
        max_connections=settings.pi_max_connections,
        session_rate=settings.pi_session_rate,
        client_rate=settings.pi_client_rate,
        read_timeout_s=settings.pi_read_timeout,
        command_timeout_s=settings.pi_command_timeout,
        dependency_timeout_s=settings.pi_dependency_timeout,
        idempotency_minutes=settings.pi_idempotency_minutes,
        sessions_dir=str(Path("~/.pi/agent/sessions").expanduser()),
        default_cwd=get_working_directory(),
        exports_dir=str(settings.data_dir / "exports"),
    )


log = logging.getLogger(__name__)

POLICY_VIOLATION = 1008


class PiServerPort(Protocol):
    """Accepts clients: the protocol's server, or in a cluster the router that knows which node serves."""

    def accept(self, access: Access, *, namespace: str = "", lifecycle: bool = True, cwd: str | None = None) -> Receiver: ...

    def refuse(self, code: int, reason: str) -> Receiver: ...


class PiListeners:
    def __init__(
        self,
        settings: config.Settings,
        server: Callable[[], PiServerPort],
        authenticator: ConnectionAuthenticator,
        *,
        port_required: bool,
    ) -> None:
        """`server` is called for each client. `port_required`: a port in use is an error even if it is the default."""
        self._settings = settings
        self._get_server = server
        self._authenticator = authenticator
        self._port_required = port_required or "pi" in settings.asked
        self.limit: ConnectionLimit | None = None
        self.tls: ssl.SSLContext | None = None
        """The limit covers the connections to all ports, and is set before these open."""
        self._port: HttpListener | None = None
        self._unix: unix.UnixListener | None = None

    @property
    def url(self) -> str | None:
        return self._port.websocket_url if self._port else None

    @property
    def bound_address(self) -> str | None:
        return self._port.listening if self._port else None

    @property
    def socket(self) -> str | None:
        return str(self._unix.path) if self._unix else None

    async def open(self) -> None:
        settings = self._settings
        if address := parsers.parse_address(settings.pi):
            self._port = await self._open_port(address)
        if not parsers.is_valid_socket_path(settings.pi_socket):
            log.warning("`%s` is too long for a socket; `tower stdio` will not find this daemon", settings.pi_socket)
            return
        self._unix = await unix.listen(
            settings.pi_socket,
            self._accept_socket,
            max_line_bytes=settings.pi_max_frame_bytes,
            output_limit_bytes=settings.output_limit_bytes,
            complaint=describe_oversized_frame,
        )

    async def _open_port(self, address: parsers.ListenAddress) -> "HttpListener | None":
        # These imports are late, like those of the HTTP port, which usually loads them first.
        from switchtower.transports import http, origins, upgrade
        from switchtower.web_api import early_pages

        settings = self._settings
        is_local = address.host in origins.LOOPBACK or socket_owner.is_loopback(f"{address.host}:{address.port}")
        try:
            return await http.serve(
                early_pages.serve_health,
                address.host,
                address.port,
                self._accept_at_port,
                max_message_bytes=settings.pi_max_frame_bytes,
                output_limit_bytes=settings.output_limit_bytes,
                hosts=() if is_local else (upgrade.ANY_HOST,),
                sites=origins.AllowedOrigins(settings.origins),
                limit=self.limit,
                # Clients of this machine know the port as `ws://127.0.0.1:3141`.
                tls=None if is_local else self.tls,
            )
        except stream.AddressInUse as problem:
            if self._port_required:
                raise stream.AddressInUse(
                    f"{problem.about}, the port of the pi protocol",
                    hint="stop that process, or choose another port with `--pi HOST:PORT` (`off` does without)",
                ) from None
            # The default port was not requested explicitly; a second home on the same machine must not fail because of it.
            log.warning("%s is in use; the pi protocol has no port of its own", settings.pi)
            return None

    def _accept_at_port(self, request: "upgrade.UpgradeRequest") -> "Receiver | upgrade.UpgradeAdmission":
        from switchtower.transports import origins, upgrade

        by_name = origins.parse_hostname(request.headers.get("host", "")) in origins.LOOPBACK
        access = self._authenticator.authenticate_open_port(request.origin, by_name=by_name)
        if access is None:
            # pi-server, interop: a client without permission is closed with 1008.
            receiver = self._get_server().refuse(POLICY_VIOLATION, "pass the token of endpoints.json as `?token=`")
            longest = self._settings.pi_max_frame_bytes
            return upgrade.UpgradeAdmission(
                receiver=receiver, max_message_bytes=longest, complaint=describe_oversized_frame, authenticated=False
            )
        return self.accept_websocket(request, access)

    def accept_websocket(self, request: "upgrade.UpgradeRequest", access: Access) -> "upgrade.UpgradeAdmission":
        """Accepts an authenticated client."""
        from switchtower.transports import upgrade

        receiver = self._get_server().accept(access, lifecycle=request.query.get("lifecycle") != "off")
        return upgrade.UpgradeAdmission(
            receiver=receiver, max_message_bytes=self._settings.pi_max_frame_bytes, complaint=describe_oversized_frame
        )

    def _accept_socket(self, origin: ConnectionOrigin) -> Receiver:
        access = self._authenticator.authenticate_socket(origin)
        if access is None or not access.trusted:
            # Pi's clients have no attach token to present.
            return self._get_server().refuse(POLICY_VIOLATION, "not let in")
        return self._get_server().accept(access)

    def list_connections(self) -> "Iterator[unix.ListenerConnection]":
        from switchtower.transports import unix

        if self._port is not None:
            yield from unix.list_http_connections(self._port)
        if self._unix is not None:
            yield from unix.list_unix_connections(self._unix)

    async def close(self, grace: float) -> None:
        if self._unix is not None:
            await self._unix.close(grace=grace)
        if self._port is not None:
            await self._port.close(grace=grace)


def describe_oversized_frame(size: int, limit: int) -> str:
    # pi-server, interop: one of the strings that clients match.
    return f"Message size {size} exceeds limit {limit}"


POLL_SECONDS = 0.02
"""Seconds between two checks for pending answers."""


class StdioDescriptors(NamedTuple):
    """The descriptors that the protocol has claimed: nothing else reads or writes them."""

    input: int
    output: int


class StdioPiClient:
    def __init__(
        self,
        descriptors: StdioDescriptors,
        settings: config.Settings,
        server: PiServerPort,
        *,
        cwd: str,
        ended: Callable[[], None],
    ) -> None:
        from switchtower.transports.stdio import StdioConnection

        # Ids are the client's own choice, and a client with its own process counts from one again.
        self._ended = ended
        self._timeout = settings.shutdown_timeout
        self._loop = asyncio.get_running_loop()
        access = Access(name="owner", via="cli", trusted=True, role=Role.ADMIN, address="local")
        self._receiver = receiver = server.accept(access, namespace=secrets.token_hex(8), cwd=cwd)
        self._connection = StdioConnection(
            receiver,
            descriptors.input,
            descriptors.output,
            max_line_bytes=settings.pi_max_frame_bytes,
            output_limit_bytes=settings.output_limit_bytes,
            ended=self._on_input_end,
            complaint=describe_oversized_frame,
        )

    def open(self) -> None:
        self._connection.start()

    async def close(self) -> None:
        """Writes the remaining answers, unless the client has stopped reading."""
        self._connection.close()
        await self._connection.wait_closed()

    def _on_input_end(self) -> None:
        self._stop_when_answered(self._loop.time() + self._timeout)

    def _stop_when_answered(self, deadline: float) -> None:
        if (
            isinstance(self._receiver, RespondingReceiver)
            and self._receiver.has_pending_responses()
            and self._loop.time() < deadline
        ):
            self._loop.call_later(POLL_SECONDS, self._stop_when_answered, deadline)
        else:
            self._ended()
