"""Where MiniCodex clients come in: one path of the HTTP port. Its rooms are loaded when the first one does."""

from typing import TYPE_CHECKING

from switchtower import config
from switchtower.core import tower
from switchtower.core.access import Access
from switchtower.daemon.pi_house import workplace

if TYPE_CHECKING:
    from switchtower.protocols.minicodex.house import House
    from switchtower.transports import upgrade
    from switchtower.transports.stream import Receiver

PATH = "/ws/minicodex"
WISHES = ("provider", "model", "policy", "thinking", "title")
LONGEST_WISH = 256


class MiniCodexDoor:
    def __init__(self, settings: config.Settings, tower_: tower.Tower) -> None:
        self._settings = settings
        self._tower = tower_
        self._house: House | None = None

    def accept(self, request: "upgrade.Upgrade", access: Access) -> "Receiver":
        query = request.query
        return self._built().accept(
            access,
            session_id=query.get("session_id") or None,
            preset=query.get("preset"),
            cwd=query.get("cwd"),
            command=query.get("command") if query.get("engine") == "pty" else None,
            wishes={name: query[name][:LONGEST_WISH] for name in WISHES if query.get(name)},
        )

    def _built(self) -> "House":
        if self._house is None:
            from switchtower.protocols.minicodex.house import House
            from switchtower.protocols.minicodex.settings import MiniCodexSettings

            own = MiniCodexSettings(
                heartbeat_s=self._settings.minicodex_heartbeat,
                replay_entries=self._settings.minicodex_replay,
                default_cwd=workplace(),
            )
            self._house = House(self._tower, own)
        return self._house

    def let_go(self) -> None:
        """All clients, with the hint to come back."""
        if self._house is not None:
            self._house.let_go()

    async def close(self) -> None:
        if self._house is not None:
            await self._house.close()
