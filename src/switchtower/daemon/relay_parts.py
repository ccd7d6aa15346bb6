"""Relay's parts, made from the settings and joined: accounts, this host, the hub, and the link to another hub."""

import os
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from switchtower import config
from switchtower.accounts import credentials
from switchtower.accounts.accounts import Accounts
from switchtower.accounts.authenticators import HostAuthenticator
from switchtower.core import redact
from switchtower.daemon import home, pi
from switchtower.daemon.relay import SharedServices, WebFeatures
from switchtower.protocols.relay import wire_values
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.hub.hub import Hub
from switchtower.protocols.relay.hub.mirror import HostQuotas
from switchtower.protocols.relay.settings import HostSettings
from switchtower.runtime.runtime import Runtime
from switchtower.tools.processes import marks
from switchtower.transports.stream import ConnectionOrigin
from switchtower.web_api import app

if TYPE_CHECKING:
    from switchtower.protocols.relay.link.link import HubLink

PING_SECONDS = 9.0
"""Seconds of silence after which the other end of a link is pinged. One that is silent for three such periods counts as dead, so
each end notices a dead link within 30 seconds."""


class RelayParts:
    def __init__(
        self,
        settings: config.Settings,
        runtime: Runtime,
        redactor: redact.Redactor,
        owner_token: str,
        version: str,
        find_run: Callable[[ConnectionOrigin], str | None],
        web_page: WebFeatures,
        shared: SharedServices,
        started_at_ms: int,
    ) -> None:
        """`started_at_ms` is when the daemon started: a new hub is sent the events since then."""
        self._settings = settings
        self._web_page = web_page
        self._version = version
        self._find_run = find_run
        me = home.load_host_identity(settings, marks.get_full_environment())
        redactor.add_secret(me.host_token)
        redactor.add_secret(shared.jwt_secret.decode(errors="replace"))
        self._runtime = runtime
        self._registry = shared.registry
        mesh = shared.mesh
        user = credentials.read_environment_user(marks.get_full_environment())
        self.accounts = Accounts(
            self._registry, shared.jwt_secret, owner_token, environment_user=user, redeem=web_page.visits.redeem
        )
        host_name = home.get_host_name(settings) if mesh is None else mesh.local_peer.name
        about_us = HostSettings(
            host_id=me.host_id,
            version=version,
            default_cwd=pi.get_working_directory(),
            approval_timeout_ms=int(settings.approval_timeout * 1_000),
            log_path=os.environ.get("HOSTD_LOG_PATH") or str(settings.log_path),
            server_base_url=settings.hub,
            local_unix_socket=str(settings.host_socket),
            sandbox_network=settings.sandbox_network,
            journal_path=None if settings.store else str(settings.journal_path),
            node_id=None if mesh is None else mesh.local_peer.node_id,
        )
        self.rpc = HostRpcHandler(runtime, about_us)
        quotas = HostQuotas(
            sessions=settings.host_max_sessions,
            approvals=settings.host_max_approvals,
            messages_per_minute=settings.host_messages_per_minute,
            bytes_per_minute=settings.host_bytes_per_minute,
        )
        self.hub = Hub(
            runtime,
            self._registry,
            self.rpc,
            host_name=host_name,
            lost_after_s=settings.lost_after,
            mesh=mesh,
            quotas=quotas,
            max_frame_bytes=settings.host_max_frame_bytes,
        )
        self.host_authenticator = HostAuthenticator(settings, self._registry, self.hub.is_node, runtime.now_ms)
        self.link: HubLink | None = None
        if settings.hub is not None:
            from switchtower.protocols.relay.link import link as links
            from switchtower.protocols.relay.settings import LinkSettings
            from switchtower.transports import ws_client

            link = LinkSettings(
                hub_url=settings.hub,
                host_id=me.host_id,
                host_token=me.host_token,
                host_name=host_name,
                hub_may=cast(Any, settings.hub_may),
                heartbeat_s=settings.heartbeat,
                started_at_ms=started_at_ms,
                max_frame_bytes=settings.host_max_frame_bytes,
            )
            connect = partial(
                ws_client.connect,
                max_message_bytes=settings.host_max_frame_bytes,
                output_limit_bytes=settings.output_limit_bytes,
                ping_seconds=PING_SECONDS,
                complaint=wire_values.format_frame_too_long,
            )
            self.link = links.HubLink(runtime, self._registry, self.rpc, link, connect, random.random)
        if web_page.web_push is not None:
            web_page.web_push.knows = self.accounts.has_user
        self._extras = web_page.make_optional_endpoints(self._is_linked)

    def _is_linked(self) -> bool | None:
        """None without a hub."""
        return None if self.link is None else self.link.status.phase == "connected"

    def make_public_app(self, host: str) -> Any:
        """Makes the app of the HTTP port that listens at `host`."""
        return app.make_app(
            self.hub,
            self.accounts,
            version=self._version,
            find_run=self._find_run,
            host=host,
            origins=self._settings.origins,
            extras=self._extras,
        )

    def make_owner_app(self) -> Any:
        """Makes the app of the host's own socket."""
        return app.make_owner_app(
            self.hub,
            self.accounts,
            self._runtime,
            self.rpc,
            version=self._version,
            find_run=self._find_run,
            extras=self._extras,
            visits=self._web_page.visits,
        )

    async def open(self) -> None:
        await self._registry.open()
        self._runtime.elsewhere = self.hub
        await self.hub.start()
        if self.link is not None:
            self._runtime.undelivered = self.link.list_unsettled
            self.link.start()

    async def close(self) -> None:
        if self.link is not None:
            await self.link.close()
        await self.hub.close()
        self.accounts.close()
        await self._registry.close()
