"""Where pi clients come in: a port of their own, a path of the HTTP port, and a Unix socket of the owner's.

Decides who is let in; how many there may be, and what is said to them, is the protocol's own affair.
"""

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from switchtower import config
from switchtower.core.access import Access
from switchtower.daemon.access import ConnectionAuthenticator
from switchtower.settings import values
from switchtower.transports import errors, tcp_owner, unix
from switchtower.transports.stream import ConnectionOrigin, Receiver

if TYPE_CHECKING:
    import ssl

    from switchtower.transports import census, upgrade
    from switchtower.transports.connection_limit import ConnectionLimit
    from switchtower.transports.http import HttpListener

log = logging.getLogger(__name__)

POLICY_VIOLATION = 1008


class PiServerPort(Protocol):
    """Who takes clients in: the protocol's house, or where there are several nodes whoever knows which one's it is."""

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
        """`house` is asked for with each client. `port_required`: that the port is taken is an error, whoever chose it."""
        self._settings = settings
        self._get_server = server
        self._authenticator = authenticator
        self._port_required = port_required or "pi" in settings.asked
        self.limit: ConnectionLimit | None = None
        self.tls: ssl.SSLContext | None = None
        """On connections to all ports; set before these open."""
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
        if address := values.parse_address(settings.pi):
            self._port = await self._open_port(address)
        if not values.is_valid_socket_path(settings.pi_socket):
            log.warning("`%s` is too long for a socket; `tower stdio` will not find this daemon", settings.pi_socket)
            return
        self._unix = await unix.listen(
            settings.pi_socket,
            self._accept_socket,
            max_line_bytes=settings.pi_max_frame_bytes,
            output_limit_bytes=settings.output_limit_bytes,
            complaint=describe_oversized_frame,
        )

    async def _open_port(self, address: values.ListenAddress) -> "HttpListener | None":
        # As for the HTTP port, which is the first to pay for these.
        from switchtower.daemon import health_page
        from switchtower.transports import http, origins, upgrade

        settings = self._settings
        is_local = address.host in origins.LOOPBACK or tcp_owner.is_loopback(f"{address.host}:{address.port}")
        try:
            return await http.serve(
                health_page.serve_health,
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
        except errors.AddressInUse as problem:
            if self._port_required:
                raise errors.AddressInUse(
                    f"{problem.about}, the port of the pi protocol",
                    hint="stop that process, or choose another port with `--pi HOST:PORT` (`off` does without)",
                ) from None
            # Nobody asked for this very port; a second home on the same machine must not fail over it.
            log.warning("%s is in use; the pi protocol has no port of its own", settings.pi)
            return None

    def _accept_at_port(self, request: "upgrade.UpgradeRequest") -> "Receiver | upgrade.UpgradeAdmission":
        from switchtower.transports import origins, upgrade

        by_name = origins.parse_hostname(request.headers.get("host", "")) in origins.LOOPBACK
        access = self._authenticator.authenticate_open_port(request.origin, by_name=by_name)
        if access is None:
            # pi-server, interop: a client without the right to be here is closed with 1008.
            receiver = self._get_server().refuse(POLICY_VIOLATION, "pass the token of endpoints.json as `?token=`")
            longest = self._settings.pi_max_frame_bytes
            return upgrade.UpgradeAdmission(
                receiver=receiver, max_message_bytes=longest, complaint=describe_oversized_frame, authenticated=False
            )
        return self.accept_websocket(request, access)

    def accept_websocket(self, request: "upgrade.UpgradeRequest", access: Access) -> "upgrade.UpgradeAdmission":
        """A client that was let in."""
        from switchtower.transports import upgrade

        receiver = self._get_server().accept(access, lifecycle=request.query.get("lifecycle") != "off")
        return upgrade.UpgradeAdmission(
            receiver=receiver, max_message_bytes=self._settings.pi_max_frame_bytes, complaint=describe_oversized_frame
        )

    def _accept_socket(self, origin: ConnectionOrigin) -> Receiver:
        access = self._authenticator.authenticate_socket(origin)
        if access is None or not access.trusted:
            # Pi's clients have no attach token to show.
            return self._get_server().refuse(POLICY_VIOLATION, "not let in")
        return self._get_server().accept(access)

    def list_connections(self) -> "Iterator[census.ListenerConnection]":
        from switchtower.transports import census

        if self._port is not None:
            yield from census.list_http_connections(self._port)
        if self._unix is not None:
            yield from census.list_unix_connections(self._unix)

    async def close(self, grace: float) -> None:
        if self._unix is not None:
            await self._unix.close(grace=grace)
        if self._port is not None:
            await self._port.close(grace=grace)


def describe_oversized_frame(size: int, limit: int) -> str:
    # pi-server, interop: one of the strings that clients look for.
    return f"Message size {size} exceeds limit {limit}"
