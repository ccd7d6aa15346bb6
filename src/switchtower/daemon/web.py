"""The features of the HTTP port beyond relay's own endpoints: the page, browser logins, metrics, the audit, notifications. Each
is loaded at its first use."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import switchtower
from switchtower import config
from switchtower.accounts.authenticators import ConnectionAuthenticator
from switchtower.runtime.runtime import Runtime
from switchtower.telemetry.metrics import Metrics
from switchtower.transports.stream import ConnectionOrigin
from switchtower.web_api.browser_login import VisitTokens

if TYPE_CHECKING:
    from switchtower.daemon.cluster import LocalNode, PostgresStoreStatus
    from switchtower.notifications.web_push import WebPushChannel
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
        from switchtower.web_api.endpoints import page_files
        from switchtower.web_api.monitor import Monitor

        settings, node = self._settings, self._node
        store = self._get_store_status()
        return ports.OptionalEndpoints(
            page=page_files.PageFiles(settings.web_dir or FOLDER),
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
