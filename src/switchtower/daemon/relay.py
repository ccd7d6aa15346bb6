"""Relay as the daemon's other parts see it, before and after it is loaded: when the first client connects, or when the daemon
listens and is idle.

The features of the HTTP port beyond relay's own endpoints: the page, browser logins, metrics, the audit, notifications. Each
is loaded at its first use."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

import switchtower
from switchtower import config
from switchtower.accounts.authenticators import ConnectionAuthenticator, TokenBoundReceiver
from switchtower.cluster.mesh.ports import Mesh
from switchtower.core import redact
from switchtower.core.ports import registry as ports_registry
from switchtower.core.roles import Access
from switchtower.runtime.runtime import Runtime
from switchtower.telemetry.metrics import Metrics
from switchtower.tools.processes import marks
from switchtower.transports.stream import ConnectionOrigin
from switchtower.web_api.browser_login import VisitTokens

if TYPE_CHECKING:
    from switchtower.daemon.cluster import LocalNode, PostgresStoreStatus
    from switchtower.daemon.relay_parts import RelayParts
    from switchtower.notifications.web_push import WebPushChannel
    from switchtower.transports import upgrade, ws_server
    from switchtower.transports.unix import ListenerConnection
    from switchtower.web_api import ports
    from switchtower.web_api.monitor import SqliteStoreStatus


FOLDER = Path(switchtower.__file__).with_name("web_dist")
"""The folder into which the build puts the page; the wheel has it there."""
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


class WebFeatures:
    def __init__(
        self,
        settings: config.Settings,
        runtime: Runtime,
        authenticator: ConnectionAuthenticator,
        metrics: Metrics,
        version: str,
        node: "LocalNode | None" = None,
    ) -> None:
        self._settings = settings
        self._node = node
        self._runtime = runtime
        self._authenticator = authenticator
        self._metrics = metrics
        self._version = version
        self.visits = VisitTokens()
        self.connected: Callable[[], Iterable[ListenerConnection]] = tuple
        """All connections; the listeners list them."""
        self.web_push: WebPushChannel | None = None

    def make_optional_endpoints(self, hub_linked: Callable[[], bool | None]) -> "ports.OptionalEndpoints":
        from switchtower.web_api import ports
        from switchtower.web_api.endpoints import pages
        from switchtower.web_api.monitor import Monitor

        settings, node = self._settings, self._node
        store = self._get_store_status()
        return ports.OptionalEndpoints(
            page=pages.PageFiles(settings.web_dir or FOLDER),
            monitor=Monitor(
                self._metrics,
                self._runtime,
                self._version,
                lambda: self.connected(),
                hub_linked,
                check=store.list_unready_reasons,
                count_states=store.count_states,
                journal_bytes=store.measure_size,
                node_name=None if node is None else node.name,
                node_figures=None if node is None else node.collect_figures,
            ),
            decisions=store.decisions,
            pushes=self.web_push,
            sessions=self._runtime,
            public_url=settings.public_url,
            can_read=self._can_read_metrics,
        )

    def _get_store_status(self) -> "SqliteStoreStatus | PostgresStoreStatus":
        if self._node is not None:
            from switchtower.daemon.cluster import PostgresStoreStatus

            return PostgresStoreStatus(self._node)
        from switchtower.web_api.monitor import SqliteStoreStatus

        return SqliteStoreStatus(self._settings.journal_path)

    def _can_read_metrics(self, origin: ConnectionOrigin, headers: Mapping[str, str]) -> bool:
        """All clients may read them if `metrics_public` is set; otherwise one of the owner's processes on this machine, unless it
        forwards for another client."""
        if self._settings.metrics_public:
            return True
        if "authorization" in headers or any(name in headers for name in _FORWARDED):
            return False
        # A page's request without `Origin` still shows that a page asks; `none` is an address that a user typed.
        if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
            return False
        from switchtower.transports import origins

        by_name = origins.parse_hostname(headers.get("host", "")) in origins.LOOPBACK
        return self._authenticator.authenticate_open_port(origin, by_name=by_name) is not None


APP_PATH, HOST_PATH = "/ws/app", "/ws/host"
MAX_USER_AGENT_LENGTH = 200


class SharedServices(Struct, frozen=True):
    """The services that the nodes of one cluster share. A single daemon has its own registry and secret."""

    registry: ports_registry.Registry
    """The registry is opened and closed with the parts."""
    jwt_secret: bytes
    mesh: Mesh | None = None
    """The connection to the other nodes."""

    def __repr__(self) -> str:
        """Leaves out the secret."""
        return f"Shared(registry={self.registry!r}, mesh={self.mesh!r})"


class LazyRelay:
    def __init__(
        self,
        settings: config.Settings,
        runtime: Runtime,
        authenticator: ConnectionAuthenticator,
        redactor: redact.Redactor,
        owner_token: str,
        version: str,
        web: WebFeatures,
        *,
        shared: SharedServices | None = None,
    ) -> None:
        """`shared` holds the services that several nodes share; None for a single daemon."""
        self._settings = settings
        self._web = web
        self._runtime = runtime
        self._authenticator = authenticator
        self._redactor = redactor
        self._owner_token = owner_token
        self._version = version
        self._shared = shared
        self._started_at_ms = runtime.now_ms()
        self._loading = asyncio.Lock()
        self._made: RelayParts | None = None
        self._parts: RelayParts | None = None

    async def get_parts(self) -> "RelayParts":
        """Loads the parts, unless they are loaded."""
        async with self._loading:
            if self._parts is None:
                await asyncio.to_thread(import_module, "switchtower.daemon.relay_parts")
                from switchtower.daemon.relay_parts import RelayParts

                self._made = self._made or RelayParts(
                    self._settings,
                    self._runtime,
                    self._redactor,
                    self._owner_token,
                    self._version,
                    self._authenticator.find_run,
                    self._web,
                    self._shared or self._make_own_services(),
                    self._started_at_ms,
                )
                parts = self._made  # if opening failed, the next caller tries again
                await parts.open()
                self._parts = parts
            return self._parts

    def _make_own_services(self) -> SharedServices:
        from switchtower.accounts import credentials
        from switchtower.stores.sqlite.registry import SqliteRegistry

        secret = credentials.load_jwt_secret(self._settings.data_dir, marks.get_full_environment())
        return SharedServices(SqliteRegistry(self._settings.registry_path), secret)

    async def authenticate_user(self, request: "upgrade.UpgradeRequest") -> Access | None:
        """Authenticates a client with a token: the owner, or a user who has logged in."""
        if (access := self._authenticator.authenticate_websocket(request.origin)) is not None:
            return msgspec.structs.replace(access, device=_get_user_agent(request))
        token = request.origin.token
        if token is None or not self._authenticator.is_owner_process(request.origin):
            return None
        identity = await (await self.get_parts()).accounts.verify(token)
        if identity is None:
            return None
        return Access(
            name=identity.name,
            via="web",
            trusted=True,
            role=identity.role,
            device=identity.describe_device(_get_user_agent(request)),
            address=request.origin.machine,
        )

    async def accept_app(self, request: "upgrade.UpgradeRequest") -> "ws_server.UpgradeVerdict":
        from switchtower.transports import upgrade

        access = await self.authenticate_user(request)
        if access is None:
            return upgrade.UpgradeRefusal(401, "log in, and pass the access token as `?token=`")
        from switchtower.protocols.relay import wire_values
        from switchtower.protocols.relay.hub.app_connection import AppConnection

        # A client of this path is a page or an app, whatever its token.
        access = msgspec.structs.replace(access, via="web", trusted=True)
        admission = upgrade.UpgradeAdmission(
            receiver=AppConnection((await self.get_parts()).hub, access),
            max_message_bytes=self._settings.max_line_bytes,
            complaint=wire_values.format_frame_too_long,
            discards_long_frames=True,
        )
        return await self.bind_to_token(request, admission, access)

    async def bind_to_token(
        self, request: "upgrade.UpgradeRequest", verdict: "ws_server.UpgradeVerdict", access: Access
    ) -> "ws_server.UpgradeVerdict":
        """Returns the same verdict, bound to its token: the connection ends when the token does, or when its role changes. The
        owner's token has no end."""
        from switchtower.transports import upgrade

        token = request.origin.token
        if (
            token is None
            or isinstance(verdict, upgrade.UpgradeRefusal)
            or self._authenticator.authenticate_websocket(request.origin) is not None
        ):
            return verdict
        accounts = (await self.get_parts()).accounts

        async def is_good() -> bool:
            identity = await accounts.verify(token)
            return identity is not None and identity.role is access.role

        if isinstance(verdict, upgrade.UpgradeAdmission):
            return msgspec.structs.replace(verdict, receiver=TokenBoundReceiver(verdict.receiver, is_good, accounts.watch))
        return TokenBoundReceiver(verdict, is_good, accounts.watch)

    async def accept_host(self, request: "upgrade.UpgradeRequest") -> "ws_server.UpgradeVerdict":
        from switchtower.transports import upgrade
        from switchtower.transports.origins import AllowedOrigins, OriginVerdict

        # The first token of a host is trusted, so a page could claim to be a host.
        sites = AllowedOrigins(self._settings.origins)
        if request.origin.is_page and upgrade.judge_origin(request, sites) is not OriginVerdict.CONFIGURED:
            return upgrade.UpgradeRefusal(403, "a page cannot be a host")
        if not self._authenticator.is_owner_process(request.origin):
            return upgrade.UpgradeRefusal(403, "a process of a run cannot be a host")
        parts = await self.get_parts()
        admitted = await parts.host_authenticator.authenticate(request)
        if isinstance(admitted, upgrade.UpgradeRefusal):
            return admitted
        from switchtower.daemon.relay_parts import PING_SECONDS
        from switchtower.protocols.relay import wire_values

        return upgrade.UpgradeAdmission(
            receiver=parts.hub.make_host_connection(admitted),
            max_message_bytes=self._settings.host_max_frame_bytes,
            complaint=wire_values.format_frame_too_long,
            discards_long_frames=True,
            ping_seconds=PING_SECONDS,
        )

    async def close_for_restart(self, code: int, reason: str) -> None:
        """Disconnects apps and hosts."""
        if self._parts is not None:
            self._parts.hub.close_for_restart(code, reason)

    def get_link_status(self) -> dict[str, Any]:
        """Returns the status of the link to the hub, for people. It loads nothing, and contains no token."""
        if self._settings.hub is None:
            return {"hub": None}
        link = None if self._parts is None else self._parts.link
        state = {"phase": "starting"} if link is None else msgspec.to_builtins(link.status)
        return {"hub": self._settings.hub, **state}

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()


def _get_user_agent(request: "upgrade.UpgradeRequest") -> str:
    return request.headers.get("user-agent", "")[:MAX_USER_AGENT_LENGTH]
