"""What the HTTP port offers beyond relay's own endpoints: the page, a browser's way in, figures, the audit, notifications. Light
until somebody asks for one of them."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import switchtower
from switchtower import config
from switchtower.daemon.access import Doorkeeper
from switchtower.daemon.browser_login import Visits
from switchtower.daemon.vitals import Vitals
from switchtower.runtime.runtime import Runtime
from switchtower.transports.stream import Origin

if TYPE_CHECKING:
    from switchtower.daemon.journal_file import JournalFile
    from switchtower.daemon.nodes.node import Node
    from switchtower.daemon.nodes.shared_store import SharedStore
    from switchtower.daemon.notify_push import WebPush
    from switchtower.protocols.relay.http import ports
    from switchtower.transports.census import Connected

FOLDER = Path(switchtower.__file__).with_name("web_dist")
"""Where the build puts the page; the wheel has it there."""
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


class WebPage:
    def __init__(
        self,
        settings: config.Settings,
        runtime: Runtime,
        doorkeeper: Doorkeeper,
        vitals: Vitals,
        version: str,
        node: "Node | None" = None,
    ) -> None:
        self._settings = settings
        self._node = node
        self._runtime = runtime
        self._doorkeeper = doorkeeper
        self._vitals = vitals
        self._version = version
        self.visits = Visits()
        self.connected: Callable[[], Iterable[Connected]] = tuple
        """Everybody who is connected; the listeners know."""
        self.web_push: WebPush | None = None

    def extras(self, hub_linked: Callable[[], bool | None]) -> "ports.Extras":
        from switchtower.daemon.monitor import Monitor
        from switchtower.protocols.relay.http import page_files, ports

        settings, node = self._settings, self._node
        store = self._store()
        return ports.Extras(
            page=page_files.PageFiles(settings.web_dir or FOLDER),
            monitor=Monitor(
                self._vitals,
                self._runtime,
                self._version,
                lambda: self.connected(),
                hub_linked,
                check=store.reasons_not_ready,
                count_states=store.count_states,
                journal_bytes=store.size,
                node_name=None if node is None else node.name,
                node_figures=None if node is None else node.figures,
            ),
            decisions=store.decisions,
            pushes=self.web_push,
            sessions=self._runtime,
            public_url=settings.public_url,
            may_look=self._may_look,
        )

    def _store(self) -> "JournalFile | SharedStore":
        if self._node is not None:
            from switchtower.daemon.nodes.shared_store import SharedStore

            return SharedStore(self._node)
        from switchtower.daemon.journal_file import JournalFile

        return JournalFile(self._settings.journal_path)

    def _may_look(self, origin: Origin, headers: Mapping[str, str]) -> bool:
        """Everybody, if so wished; otherwise a process of the owner's on this machine, unless it speaks for somebody else."""
        if self._settings.metrics_public:
            return True
        if "authorization" in headers or any(name in headers for name in _FORWARDED):
            return False
        # A page's request without `Origin` still says that a page asks; `none` is an address that a person typed.
        if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
            return False
        from switchtower.transports import origins

        by_name = origins.hostname(headers.get("host", "")) in origins.LOOPBACK
        return self._doorkeeper.on_open_port(origin, by_name=by_name) is not None
