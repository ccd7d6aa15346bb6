"""The app on a screen of its own, with a real daemon and the demo model behind it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.conformance.daemons import ManagedDaemon
from textual.pilot import Pilot

from switchtower import config
from switchtower.tui.app import TowerApp
from switchtower.tui.feed import DaemonFeed

TIMEOUT = 60


class AppDriver:
    """Somebody at the app."""

    def __init__(self, app: TowerApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    async def wait_until(self, happened: Callable[[], object]) -> None:
        """The daemon is another process: what it does is awaited, however long it takes."""
        try:
            async with asyncio.timeout(TIMEOUT):
                while not happened():
                    await self.pilot.pause(0.01)
        except TimeoutError:
            raise AssertionError(f"it never happened; the screen says:\n{self.read_screen()}") from None
        await self.pilot.pause()

    async def write(self, text: str) -> None:
        self.app.main.composer.set_text(text)
        await self.pilot.press("enter")

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    def read_transcript(self) -> str:
        """All that is painted of it."""
        return "\n".join(strip.text.rstrip() for one in self.app.main.transcript._painted for strip in one.strips)

    def read_screen(self) -> str:
        """The whole screen as text."""
        height = self.app.size.height
        rows = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in row).rstrip() for row in rows[:height])

    async def wait_for_text(self, text: str) -> None:
        await self.wait_until(lambda: text in self.read_screen())

    async def wait_for_notice(self, text: str) -> None:
        """In one of the notes that come and go."""
        await self.wait_until(lambda: any(text in note.message for note in self.app._notifications))

    async def wait_for_transcript_text(self, text: str) -> None:
        await self.wait_until(lambda: text in self.read_transcript())

    async def wait_for_approval(self) -> Any:
        await self.wait_until(lambda: self.app.screen.id == "approval-screen")
        return self.app.screen

    async def wait_until_idle(self) -> None:
        await self.wait_until(
            lambda: self.app.session is not None and not self.app.session.is_running and self.app.session.transcript.blocks
        )


@asynccontextmanager
async def open_app(
    daemon: ManagedDaemon, workspace: Path, *, size: tuple[int, int] = (120, 40), session_id: str | None = None, quiet: float = 0
) -> AsyncIterator[AppDriver]:
    """The app, connected."""
    settings = config.Settings(home=daemon.home, http="off", pi="off", provider="demo")
    app = TowerApp(settings, DaemonFeed(settings), root=str(workspace), session_id=session_id, quiet=quiet)
    async with app.run_test(size=size) as pilot:
        seat = AppDriver(app, pilot)
        await seat.wait_until(lambda: app.feed.link == "connected")
        yield seat
