"""What was written, on its way: a command of ours, a message that begins a session or a run, or one that steers it."""

import asyncio
from typing import TYPE_CHECKING

from switchtower.client import errors
from switchtower.tui import place, remembered
from switchtower.tui.commands import SlashCommandRunner
from switchtower.tui.state import harmless, slash

if TYPE_CHECKING:
    from switchtower.tui.app import TowerApp


class MessageSender:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self.commands = SlashCommandRunner(app)
        self._send_lock = asyncio.Lock()
        """What is written while a session is being started belongs to that session."""

    def submit(self, text: str) -> None:
        app = self._app
        remembered.save_history(app.settings, app.history.entries)
        match slash.parse_slash(text, [option.text for option in app.main.composer.templates]):
            case None:
                app.run_in_background(self._send(text.removeprefix("/") if text.startswith("//") else text))
            case slash.SlashInput() as typed:
                self.commands.run(typed)
            case slash.UnknownSlashCommand(name, suggestion):
                meant = f"did you mean `/{suggestion}`?" if suggestion else "see `/help`"
                app.notify(f"`/{harmless.to_safe_line(name)}` is no command; hint: {meant}", severity="warning", markup=False)
                app.main.composer.set_text(text)

    async def _send(self, text: str) -> None:
        app = self._app
        try:
            async with self._send_lock:
                if app.session is None:
                    session_id = await app.feed.start_session(app.draft.build_request(place.describe_workspace(app.draft.root)))
                    await app.opener.open_session(session_id)
                    await app.feed.send_message(session_id, text)
                elif app.session.is_running or not await self._start_run(app.session.session_id, text):
                    await app.feed.queue_message(app.session.session_id, text, "steer")
                    app.show_notice("it hears this at its next step")
        except errors.ClientError:
            if not app.main.composer.text:
                app.main.composer.set_text(text)  # nothing that was written is lost
            raise

    async def _start_run(self, session_id: str, text: str) -> bool:
        """False when somebody else has begun a run first, which can still be steered."""
        try:
            await self._app.feed.send_message(session_id, text)
        except errors.RequestFailed as problem:
            if problem.code != "RUN_IN_PROGRESS":
                raise
            return False
        return True
