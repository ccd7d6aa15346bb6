"""Where MiniCodex clients come in: one path of the HTTP port. Its rooms are loaded when the first one does."""

from typing import TYPE_CHECKING

from switchtower import config
from switchtower.core import tower
from switchtower.core.access import Access
from switchtower.daemon.pi_house import get_working_directory

if TYPE_CHECKING:
    from switchtower.protocols.minicodex.house import MiniCodexServer
    from switchtower.transports import upgrade
    from switchtower.transports.stream import Receiver

PATH = "/ws/minicodex"
OPTION_NAMES = ("provider", "model", "policy", "thinking", "title")
MAX_OPTION_LENGTH = 256


class LazyMiniCodexServer:
    def __init__(self, settings: config.Settings, service: tower.SessionService) -> None:
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
            from switchtower.protocols.minicodex.house import MiniCodexServer
            from switchtower.protocols.minicodex.settings import MiniCodexSettings

            own = MiniCodexSettings(
                heartbeat_s=self._settings.minicodex_heartbeat,
                replay_entries=self._settings.minicodex_replay,
                default_cwd=get_working_directory(),
            )
            self._server = MiniCodexServer(self._service, own)
        return self._server

    def close_for_restart(self) -> None:
        """All clients, with the hint to come back."""
        if self._server is not None:
            self._server.close_for_restart()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()
