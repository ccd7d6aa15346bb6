"""Pi's house, built late: its many rooms are loaded when the first client comes, or when the daemon, which listens by then, has
the time. Also what the daemon tells it of the settings."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from switchtower import config
from switchtower.core import tower
from switchtower.protocols.pi.settings import PiSettings

if TYPE_CHECKING:
    from switchtower.protocols.pi.house import PiServer


class LazyPiServer:
    def __init__(self, service: tower.SessionService, settings: config.Settings, version: str) -> None:
        self._service = service
        self._settings = settings
        self._version = version
        self.holds_lease: Callable[[], bool] | None = None
        """Of several nodes: whether this one may still serve."""
        self._server: PiServer | None = None

    def get(self) -> "PiServer":
        if self._server is None:
            from switchtower.protocols.pi.house import PiServer

            settings = _make_pi_settings(self._settings)
            self._server = PiServer(self._service, settings, version=self._version, now_ms=_now_ms, holds_lease=self.holds_lease)
        return self._server

    async def load(self) -> None:
        await asyncio.to_thread(import_module, "switchtower.protocols.pi.house")
        self.get()

    async def shut_down(self, timeout_s: float) -> None:
        if self._server is not None:
            await self._server.shut_down(timeout_s)

    @property
    def is_idle(self) -> bool:
        """Nobody is in it, and nothing is under way."""
        return self._server is None or self._server.is_idle

    def discard(self, code: int, reason: str) -> Coroutine[None, None, None] | None:
        """Its clients are let go at once, and whoever comes next finds another, which knows what the journal knows. What is
        left to be done behind them is returned."""
        house, self._server = self._server, None
        if house is None:
            return None
        house.close_for_restart(code, reason)
        return house.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def get_working_directory() -> str:
    """Where we were started; a daemon that a command started is in the root folder, which is nobody's workplace."""
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
