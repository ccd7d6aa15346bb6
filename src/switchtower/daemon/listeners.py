"""Where clients come in: the owner's Unix sockets, the HTTP port and pi's own. Each connection becomes a peer of one protocol."""

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from switchtower import config
from switchtower.core import tower
from switchtower.core.access import Access
from switchtower.daemon import browser_login, minicodex_door, relay_house, socket_activation
from switchtower.daemon.access import Doorkeeper
from switchtower.daemon.late_app import LateApp
from switchtower.daemon.link_page import LinkPage
from switchtower.daemon.pi_doors import PiDoors
from switchtower.daemon.relay_house import RelayHouse
from switchtower.protocols.push.peer import PushPeer
from switchtower.settings import values
from switchtower.transports import errors, unix
from switchtower.transports.stream import Origin, Receiver

if TYPE_CHECKING:
    import ssl

    from switchtower.transports import census, upgrade, websocket
    from switchtower.transports.addresses import TrustedProxies
    from switchtower.transports.connection_limit import ConnectionLimit
    from switchtower.transports.http import HttpListener, UnixHttpListener

log = logging.getLogger(__name__)

DEFAULT_HTTP = next(setting.default for setting in config.SETTINGS if setting.name == "http")

_FOR_BROWSERS = (relay_house.APP_PATH, minicodex_door.PATH)
"""Where our page's cookie is as good as a token."""


def load_certificate(settings: config.Settings) -> "ssl.SSLContext | None":
    """What the ports speak TLS with; None without a certificate. Raises `ConfigError`."""
    if settings.tls_cert is None and settings.tls_key is None:
        return None
    for name, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if getattr(settings, name) is None:
            raise config.ConfigError(name, "the settings", f"is missing beside `{other}`", hint="set both, or neither")
    assert settings.tls_cert is not None, "both are set by now"
    assert settings.tls_key is not None, "both are set by now"
    _require_pem("tls_cert", settings.tls_cert, "CERTIFICATE", "name the PEM file of the certificate, with its chain")
    _require_pem("tls_key", settings.tls_key, "PRIVATE KEY", "name the PEM file of the certificate's private key")
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_refuse_password)
    except _HasPassphrase:
        remedy = "write a copy without it, `openssl pkey -in KEY -out NEW`, that only you can read"
        raise config.ConfigError("tls_key", f"`{settings.tls_key}`", "the key has a passphrase", hint=remedy) from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", None) or str(problem)
        mismatch = f"does not belong to the certificate `{settings.tls_cert}`"
        raise config.ConfigError(
            "tls_key",
            f"`{settings.tls_key}`",
            mismatch if "MISMATCH" in reason else f"cannot be used with `{settings.tls_cert}`: {reason}",
            hint="name the key that the certificate was made with",
        ) from None
    return context


def _require_pem(name: str, path: Path, kind: str, remedy: str) -> None:
    try:
        text = path.read_bytes()
    except OSError as problem:
        reason = f"cannot be read: {problem.strerror}"
        raise config.ConfigError(name, f"`{path}`", reason, hint=f"{remedy}, and let the daemon's user read it") from None
    if b"-----BEGIN " not in text or f"{kind}-----".encode() not in text:
        raise config.ConfigError(name, f"`{path}`", f"has no {kind.lower()} in PEM form", hint=remedy)


class _HasPassphrase(Exception):
    """A key that only a passphrase opens."""


def _refuse_password() -> str:
    raise _HasPassphrase


class Listeners:
    def __init__(
        self,
        settings: config.Settings,
        tower_: tower.Tower,
        doorkeeper: Doorkeeper,
        pi: PiDoors,
        relay: RelayHouse,
        version: str,
    ) -> None:
        self._settings = settings
        self._tower = tower_
        self._doorkeeper = doorkeeper
        self._pi = pi
        self._relay = relay
        self._minicodex = minicodex_door.MiniCodexDoor(settings, tower_)
        self._version = version
        self._push: set[PushPeer] = set()
        self._unix: unix.UnixListener | None = None
        self._limit: ConnectionLimit | None = None
        self._tls: ssl.SSLContext | None = None
        self._http: HttpListener | None = None
        self._host: UnixHttpListener | None = None

    @property
    def http_url(self) -> str | None:
        return self._http.url if self._http else None

    @property
    def listening(self) -> dict[str, str]:
        """What each port is bound to."""
        found = {"http": self._http.listening if self._http else None, "pi": self._pi.listening}
        return {name: bound for name, bound in found.items() if bound is not None}

    async def open(self) -> None:
        """The socket comes last, and its clients wait for `serve_socket`: a client that is greeted there talks to a daemon that
        has all it needs, and that `endpoints.json` describes."""
        settings = self._settings
        self._tls = self._pi.tls = load_certificate(settings)
        if settings.http != "off" or settings.pi != "off":
            self._limit = self._pi.limit = self._limit_connections()
        if address := values.address(settings.http):
            self._http = await self._open_http(address)
        await self._pi.open()
        self._unix = await socket_activation.listen(
            settings.socket,
            self._accept_socket,
            max_line_bytes=settings.max_line_bytes,
            output_limit_bytes=settings.output_limit_bytes,
            start_serving=False,
        )

    async def serve_socket(self) -> None:
        assert self._unix is not None, "it was opened"
        await self._unix.serve()

    def _limit_connections(self) -> "ConnectionLimit":
        from switchtower.transports.connection_limit import ConnectionLimit, capacity

        settings = self._settings
        total = capacity(settings.max_connections)
        return ConnectionLimit(total, settings.max_connections_per_address, is_shared=self._proxies().__contains__)

    def _proxies(self) -> "TrustedProxies":
        from switchtower.transports.addresses import TrustedProxies

        return TrustedProxies(self._settings.trusted_proxies)

    async def _open_http(self, address: values.Address) -> "HttpListener":
        try:
            return await self._serve(address)
        except errors.AddressInUse:
            if self._settings.http != DEFAULT_HTTP:
                raise
            # Nobody asked for this very port; a second home on the same machine must not fail over it.
            log.warning("%s is in use; taking a free port", self._settings.http)
            return await self._serve(values.Address(address.host, 0))

    async def _serve(self, address: values.Address) -> "HttpListener":
        # The HTTP server is the heaviest import of the daemon; one without it does not pay for it.
        from switchtower.transports import http
        from switchtower.transports.origins import Sites

        async def pages() -> Any:
            return (await self._relay.parts()).app_for(address.host)

        return await http.serve(
            LateApp(pages),
            address.host,
            address.port,
            self._accept_websocket,
            max_message_bytes=self._settings.max_line_bytes,
            output_limit_bytes=self._settings.output_limit_bytes,
            sites=Sites(self._settings.origins, public_url=self._settings.public_url),
            limit=self._limit,
            proxies=self._proxies(),
            tls=self._tls,
        )

    async def open_host_socket(self) -> None:
        """Once clients are greeted: a daemon without a port pays for the HTTP server here."""
        await asyncio.to_thread(import_module, "switchtower.transports.http")
        from switchtower.transports import http

        async def pages() -> Any:
            return (await self._relay.parts()).local_app()

        self._host = await http.serve_unix(LinkPage(LateApp(pages), self._relay.link), self._settings.host_socket)

    def _accept_socket(self, origin: Origin) -> Receiver | None:
        access = self._doorkeeper.on_socket(origin)
        return None if access is None else PushPeer(self._tower, access, self._version, peers=self._push)

    def _accept_websocket(self, request: "upgrade.Upgrade") -> "websocket.Verdict | Awaitable[websocket.Verdict]":
        from switchtower.transports import upgrade

        if request.path in _FOR_BROWSERS:
            request = browser_login.with_cookie(request, self._settings.public_url)
        if request.path == relay_house.APP_PATH:
            return self._relay.accept_app(request)
        if request.path == relay_house.HOST_PATH:
            return self._relay.accept_host(request)
        if request.path not in ("/ws/push", "/ws/pi", minicodex_door.PATH):
            return upgrade.Refusal(404, f"no protocol is served at {request.path}")
        access = self._doorkeeper.on_websocket(request.origin)
        if access is None:
            return self._accept_user(request)
        return self._let_in(request, access)

    async def _accept_user(self, request: "upgrade.Upgrade") -> "websocket.Verdict":
        from switchtower.transports import upgrade

        access = await self._relay.identify(request)
        if access is None:
            return upgrade.Refusal(401, "pass the token of endpoints.json, or one that you logged in with, as `?token=`")
        return await self._relay.supervised(request, self._let_in(request, access), access)

    def _let_in(self, request: "upgrade.Upgrade", access: Access) -> "websocket.Verdict":
        if request.path == "/ws/pi":
            return self._pi.accept_websocket(request, access)
        if request.path == minicodex_door.PATH:
            return self._minicodex.accept(request, access)
        return PushPeer(self._tower, access, self._version, peers=self._push)

    def connected(self) -> "Iterator[census.Connected]":
        """Everybody who is there."""
        from switchtower.transports import census

        if self._http is not None:
            yield from census.of_port(self._http)
        if self._unix is not None:
            yield from census.of_socket(self._unix)
        yield from self._pi.connected()

    def let_go(self, grace: float) -> None:
        """Clients of push and MiniCodex, with the hint to come back: what push was asked is answered first, if it takes no longer
        than this. They may come back here too."""
        for peer in tuple(self._push):
            peer.let_go(grace)
        self._minicodex.let_go()

    async def close(self, grace: float) -> None:
        await self._minicodex.close()
        await self._pi.close(grace)
        if self._unix is not None:
            await self._unix.close(grace=grace)
        if self._host is not None:
            await self._host.close(grace=grace)
        if self._http is not None:
            await self._http.close(grace=grace)
