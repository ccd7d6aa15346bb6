"""The app on a screen of its own, with a real daemon and the demo model behind it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.conformance.daemons import Daemon
from textual.pilot import Pilot

from switchtower import config
from switchtower.tui.app import TowerApp
from switchtower.tui.feed import Feed

PATIENCE = 60


class Seat:
    """Somebody at the app."""

    def __init__(self, app: TowerApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    async def until(self, happened: Callable[[], object]) -> None:
        """The daemon is another process: what it does is awaited, however long it takes."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not happened():
                    await self.pilot.pause(0.01)
        except TimeoutError:
            raise AssertionError(f"it never happened; the screen says:\n{self.shown()}") from None
        await self.pilot.pause()

    async def write(self, text: str) -> None:
        self.app.main.composer.put(text)
        await self.pilot.press("enter")

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    def transcript(self) -> str:
        """All that is painted of it."""
        return "\n".join(strip.text.rstrip() for one in self.app.main.transcript._shown for strip in one.strips)

    def shown(self) -> str:
        """The whole screen as text."""
        height = self.app.size.height
        rows = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in row).rstrip() for row in rows[:height])

    async def until_shown(self, text: str) -> None:
        await self.until(lambda: text in self.shown())

    async def until_told(self, text: str) -> None:
        """In one of the notes that come and go."""
        await self.until(lambda: any(text in note.message for note in self.app._notifications))

    async def until_said(self, text: str) -> None:
        await self.until(lambda: text in self.transcript())

    async def until_asked(self) -> Any:
        await self.until(lambda: self.app.screen.id == "approval-screen")
        return self.app.screen

    async def until_done(self) -> None:
        await self.until(lambda: self.app.open is not None and not self.app.open.is_running and self.app.open.transcript.blocks)


@asynccontextmanager
async def sit(
    daemon: Daemon, workspace: Path, *, size: tuple[int, int] = (120, 40), session_id: str | None = None, quiet: float = 0
) -> AsyncIterator[Seat]:
    """The app, connected."""
    settings = config.Settings(home=daemon.home, http="off", pi="off", provider="demo")
    app = TowerApp(settings, Feed(settings), root=str(workspace), session_id=session_id, quiet=quiet)
    async with app.run_test(size=size) as pilot:
        seat = Seat(app, pilot)
        await seat.until(lambda: app.feed.link == "connected")
        yield seat
