"""The listeners: the owner's Unix sockets, the HTTP port and pi's own. Each connection gets the receiver of one protocol.

MiniCodex has one path of the HTTP port; its modules are loaded when the first client connects.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from switchtower import config
from switchtower.accounts.authenticators import ConnectionAuthenticator
from switchtower.core.ports import session_service
from switchtower.core.roles import Access
from switchtower.daemon import relay
from switchtower.daemon.pi import PiListeners, get_working_directory
from switchtower.daemon.relay import LazyRelay
from switchtower.protocols.push.connection import PushConnection
from switchtower.settings import parsers
from switchtower.settings.sources import ConfigError
from switchtower.transports import socket_activation, stream, unix
from switchtower.transports.stream import ConnectionOrigin, Receiver
from switchtower.web_api import browser_login
from switchtower.web_api.early_pages import LazyApp, LinkPage

if TYPE_CHECKING:
    import ssl

    from switchtower.protocols.minicodex.server import MiniCodexServer
    from switchtower.transports import upgrade, ws_server
    from switchtower.transports.connection_limit import ConnectionLimit
    from switchtower.transports.http import HttpListener, UnixHttpListener
    from switchtower.transports.origins import TrustedProxies


PATH = "/ws/minicodex"
OPTION_NAMES = ("provider", "model", "policy", "thinking", "title")
MAX_OPTION_LENGTH = 256


class LazyMiniCodexServer:
    def __init__(self, settings: config.Settings, service: session_service.SessionService) -> None:
        self._settings = settings
        self._service = service
        self._server: MiniCodexServer | None = None

    def accept(self, request: "upgrade.UpgradeRequest", access: Access) -> "Receiver":
        query = request.query
        return self._get_server().accept(
            access,
            session_id=query.get("session_id") or None,
            preset=query.get("preset"),
            cwd=query.get("cwd"),
            command=query.get("command") if query.get("engine") == "pty" else None,
            wishes={name: query[name][:MAX_OPTION_LENGTH] for name in OPTION_NAMES if query.get(name)},
        )

    def _get_server(self) -> "MiniCodexServer":
        if self._server is None:
            from switchtower.protocols.minicodex.server import MiniCodexServer, MiniCodexSettings

            own = MiniCodexSettings(
                heartbeat_s=self._settings.minicodex_heartbeat,
                replay_entries=self._settings.minicodex_replay,
                default_cwd=get_working_directory(),
            )
            self._server = MiniCodexServer(self._service, own)
        return self._server

    def close_for_restart(self) -> None:
        """Disconnects all clients, with the hint to reconnect."""
        if self._server is not None:
            self._server.close_for_restart()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()


log = logging.getLogger(__name__)

DEFAULT_HTTP = next(setting.default for setting in config.SETTINGS if setting.name == "http")

_BROWSER_PATHS = (relay.APP_PATH, PATH)
"""The paths at which our page's cookie counts as a token."""


def load_certificate(settings: config.Settings) -> "ssl.SSLContext | None":
    """Returns the TLS context of the ports; None without a certificate. Raises `ConfigError`."""
    if settings.tls_cert is None and settings.tls_key is None:
        return None
    for name, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if getattr(settings, name) is None:
            raise ConfigError(name, "the settings", f"is missing beside `{other}`", hint="set both, or neither")
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
        raise ConfigError("tls_key", f"`{settings.tls_key}`", "the key has a passphrase", hint=remedy) from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", None) or str(problem)
        mismatch = f"does not belong to the certificate `{settings.tls_cert}`"
        raise ConfigError(
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
        raise ConfigError(name, f"`{path}`", reason, hint=f"{remedy}, and let the daemon's user read it") from None
    if b"-----BEGIN " not in text or f"{kind}-----".encode() not in text:
        raise ConfigError(name, f"`{path}`", f"has no {kind.lower()} in PEM form", hint=remedy)


class _HasPassphrase(Exception):
    """The key has a passphrase."""


def _refuse_password() -> str:
    raise _HasPassphrase


class Listeners:
    def __init__(
        self,
        settings: config.Settings,
        service: session_service.SessionService,
        authenticator: ConnectionAuthenticator,
        pi: PiListeners,
        relay: LazyRelay,
        version: str,
    ) -> None:
        self._settings = settings
        self._service = service
        self._authenticator = authenticator
        self._pi = pi
        self._relay = relay
        self._minicodex = LazyMiniCodexServer(settings, service)
        self._version = version
        self._push: set[PushConnection] = set()
        self._unix: unix.UnixListener | None = None
        self._limit: ConnectionLimit | None = None
        self._tls: ssl.SSLContext | None = None
        self._http: HttpListener | None = None
        self._host: UnixHttpListener | None = None

    @property
    def http_url(self) -> str | None:
        return self._http.url if self._http else None

    @property
    def bound_addresses(self) -> dict[str, str]:
        """The address that each port is bound to."""
        found = {"http": self._http.listening if self._http else None, "pi": self._pi.bound_address}
        return {name: bound for name, bound in found.items() if bound is not None}

    async def open(self) -> None:
        """Opens the listeners. The socket is last, and its clients wait for `serve_socket`: a client that is greeted there talks
        to a daemon that is complete, and that `endpoints.json` describes."""
        settings = self._settings
        self._tls = self._pi.tls = load_certificate(settings)
        if settings.http != "off" or settings.pi != "off":
            self._limit = self._pi.limit = self._make_connection_limit()
        if address := parsers.parse_address(settings.http):
            self._http = await self._open_http(address)
        await self._pi.open()
        self._unix = await socket_activation.listen_or_activate(
            settings.socket,
            self._accept_socket,
            max_line_bytes=settings.max_line_bytes,
            output_limit_bytes=settings.output_limit_bytes,
            start_serving=False,
        )

    async def serve_socket(self) -> None:
        assert self._unix is not None, "it was opened"
        await self._unix.serve()

    def _make_connection_limit(self) -> "ConnectionLimit":
        from switchtower.transports.connection_limit import ConnectionLimit, compute_capacity

        settings = self._settings
        total = compute_capacity(settings.max_connections)
        return ConnectionLimit(total, settings.max_connections_per_address, is_shared=self._make_trusted_proxies().__contains__)

    def _make_trusted_proxies(self) -> "TrustedProxies":
        from switchtower.transports.origins import TrustedProxies

        return TrustedProxies(self._settings.trusted_proxies)

    async def _open_http(self, address: parsers.ListenAddress) -> "HttpListener":
        try:
            return await self._serve(address)
        except stream.AddressInUse:
            if self._settings.http != DEFAULT_HTTP:
                raise
            # The default port was not requested explicitly; a second home on the same machine must not fail because of it.
            log.warning("%s is in use; taking a free port", self._settings.http)
            return await self._serve(parsers.ListenAddress(address.host, 0))

    async def _serve(self, address: parsers.ListenAddress) -> "HttpListener":
        # The HTTP server is the heaviest import of the daemon; a daemon without it does not load it.
        from switchtower.transports import http
        from switchtower.transports.origins import AllowedOrigins

        async def pages() -> Any:
            return (await self._relay.get_parts()).make_public_app(address.host)

        return await http.serve(
            LazyApp(pages),
            address.host,
            address.port,
            self._accept_websocket,
            max_message_bytes=self._settings.max_line_bytes,
            output_limit_bytes=self._settings.output_limit_bytes,
            sites=AllowedOrigins(self._settings.origins, public_url=self._settings.public_url),
            limit=self._limit,
            proxies=self._make_trusted_proxies(),
            tls=self._tls,
        )

    async def open_host_socket(self) -> None:
        """Opens the host's socket, once clients are greeted: a daemon without a port loads the HTTP server here."""
        await asyncio.to_thread(import_module, "switchtower.transports.http")
        from switchtower.transports import http

        async def pages() -> Any:
            return (await self._relay.get_parts()).make_owner_app()

        self._host = await http.serve_unix(LinkPage(LazyApp(pages), self._relay.get_link_status), self._settings.host_socket)

    def _accept_socket(self, origin: ConnectionOrigin) -> Receiver | None:
        access = self._authenticator.authenticate_socket(origin)
        return None if access is None else PushConnection(self._service, access, self._version, connections=self._push)

    def _accept_websocket(
        self, request: "upgrade.UpgradeRequest"
    ) -> "ws_server.UpgradeVerdict | Awaitable[ws_server.UpgradeVerdict]":
        from switchtower.transports import upgrade

        if request.path in _BROWSER_PATHS:
            request = browser_login.apply_cookie_token(request, self._settings.public_url)
        if request.path == relay.APP_PATH:
            return self._relay.accept_app(request)
        if request.path == relay.HOST_PATH:
            return self._relay.accept_host(request)
        if request.path not in ("/ws/push", "/ws/pi", PATH):
            return upgrade.UpgradeRefusal(404, f"no protocol is served at {request.path}")
        access = self._authenticator.authenticate_websocket(request.origin)
        if access is None:
            return self._accept_user(request)
        return self._accept_authenticated(request, access)

    async def _accept_user(self, request: "upgrade.UpgradeRequest") -> "ws_server.UpgradeVerdict":
        from switchtower.transports import upgrade

        access = await self._relay.authenticate_user(request)
        if access is None:
            return upgrade.UpgradeRefusal(401, "pass the token of endpoints.json, or one that you logged in with, as `?token=`")
        return await self._relay.bind_to_token(request, self._accept_authenticated(request, access), access)

    def _accept_authenticated(self, request: "upgrade.UpgradeRequest", access: Access) -> "ws_server.UpgradeVerdict":
        if request.path == "/ws/pi":
            return self._pi.accept_websocket(request, access)
        if request.path == PATH:
            return self._minicodex.accept(request, access)
        return PushConnection(self._service, access, self._version, connections=self._push)

    def list_connections(self) -> "Iterator[unix.ListenerConnection]":
        from switchtower.transports import unix

        if self._http is not None:
            yield from unix.list_http_connections(self._http)
        if self._unix is not None:
            yield from unix.list_unix_connections(self._unix)
        yield from self._pi.list_connections()

    def close_for_restart(self, grace: float) -> None:
        """Disconnects the clients of push and MiniCodex, with the hint to reconnect, which may be here: push's pending requests
        are answered first, within `grace` seconds."""
        for peer in tuple(self._push):
            peer.close_for_restart(grace)
        self._minicodex.close_for_restart()

    async def close(self, grace: float) -> None:
        await self._minicodex.close()
        await self._pi.close(grace)
        if self._unix is not None:
            await self._unix.close(grace=grace)
        if self._host is not None:
            await self._host.close(grace=grace)
        if self._http is not None:
            await self._http.close(grace=grace)
