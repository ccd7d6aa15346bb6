"""Which session is open: opens one, or goes back to where none is, and learns what can be completed there."""

import asyncio
from typing import TYPE_CHECKING, Any

from switchtower.client import errors
from switchtower.tui import place
from switchtower.tui.state import slash
from switchtower.tui.state.conversation import SessionModel
from switchtower.tui.state.draft import SessionDraft

if TYPE_CHECKING:
    from switchtower.tui.app import TowerApp


class SessionOpener:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self._generation = 0

    async def open_session(self, session_id: str) -> None:
        app = self._app
        self._generation += 1
        turn = self._generation
        about = await app.feed.get_session(session_id)
        if turn != self._generation:
            return  # somebody has chosen another one meanwhile
        app.session = conversation = SessionModel(about)
        app.feed.follow_session(about)
        screen = app.main
        screen.set_home_layout(False)
        if conversation.is_program and about.terminal is not None:
            screen.terminal.start_program(about.terminal.cols, about.terminal.rows, takes_keys=conversation.is_running)
        else:
            screen.transcript.show(conversation.transcript, has_older=about.lastSeq > 0)
        screen.show_terminal(conversation.is_program)
        self._on_session_changed()
        if conversation.is_running and not conversation.is_program:
            # What was asked before the part that is read.
            for one in await app.feed.list_open_dialogs(session_id):
                conversation.asking.dialogs.setdefault(one.dialog_id, (0, one))
            app.prompter.ask_next()

    def start_new(self, root: str | None = None) -> None:
        """Nothing is started until something is said."""
        app = self._app
        self._generation += 1
        app.feed.close_session()
        was_open, app.session = app.session is not None, None
        if root is not None or was_open:
            app.draft = SessionDraft.from_settings(app.settings, root or app.draft.root)
        screen = app.main
        screen.set_home_layout(True)
        screen.show_terminal(False)
        screen.transcript.show(SessionModel.make_empty_transcript(), has_older=False)
        screen.show_greeting(app.draft)
        self._on_session_changed()

    def _on_session_changed(self) -> None:
        self.load_completions()
        self._app.status.refresh_all()
        self._app.status.refresh_sessions()

    def load_completions(self) -> None:
        """The files, skills and models that can be completed here."""

        async def quietly() -> None:
            try:
                await self._load_completions_of(self._app.root)
            except errors.ClientError:
                return  # completion is a convenience

        # As a function: what is cancelled before it began is then never made.
        work: Any = quietly
        self._app.run_worker(work, group="place", exclusive=True)

    async def _load_completions_of(self, root: str) -> None:
        app = self._app
        files = await asyncio.to_thread(place.list_files, root)
        if root == app.root:
            app.main.composer.files = files
        if app.feed.link == "connected":
            templates = await app.feed.list_templates(root)
            app.models = app.models or await app.feed.list_models()
            if root == app.root:
                app.main.composer.templates = [slash.SlashOption(one.name, one.description) for one in templates]
