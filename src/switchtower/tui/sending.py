"""What was written, on its way: a command of ours, a message that begins a session or a run, or one that steers it."""

import asyncio
from typing import TYPE_CHECKING

from switchtower.client import errors
from switchtower.tui import place, remembered
from switchtower.tui.commands import Commands
from switchtower.tui.state import harmless, slash

if TYPE_CHECKING:
    from switchtower.tui.app import TowerApp


class Sending:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self.commands = Commands(app)
        self._one_by_one = asyncio.Lock()
        """What is written while a session is being started belongs to that session."""

    def written(self, text: str) -> None:
        app = self._app
        remembered.keep_sent(app.settings, app.history.sent)
        match slash.parse(text, [option.text for option in app.main.composer.templates]):
            case None:
                app.do(self._send(text.removeprefix("/") if text.startswith("//") else text))
            case slash.Typed() as typed:
                self.commands.run(typed)
            case slash.Unknown(name, suggestion):
                meant = f"did you mean `/{suggestion}`?" if suggestion else "see `/help`"
                app.notify(f"`/{harmless.line(name)}` is no command; hint: {meant}", severity="warning", markup=False)
                app.main.composer.put(text)

    async def _send(self, text: str) -> None:
        app = self._app
        try:
            async with self._one_by_one:
                if app.open is None:
                    session_id = await app.feed.start(app.draft.request(place.describe(app.draft.root)))
                    await app.opening.show(session_id)
                    await app.feed.send(session_id, text)
                elif app.open.is_running or not await self._began(app.open.session_id, text):
                    await app.feed.queue(app.open.session_id, text, "steer")
                    app.say("it hears this at its next step")
        except errors.ClientError:
            if not app.main.composer.text:
                app.main.composer.put(text)  # nothing that was written is lost
            raise

    async def _began(self, session_id: str, text: str) -> bool:
        """False when somebody else has begun a run first, which can still be steered."""
        try:
            await self._app.feed.send(session_id, text)
        except errors.RequestFailed as problem:
            if problem.code != "RUN_IN_PROGRESS":
                raise
            return False
        return True
