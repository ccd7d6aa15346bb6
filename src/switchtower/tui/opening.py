"""Which session is open: opens one, or goes back to where none is, and learns what can be completed there."""

import asyncio
from typing import TYPE_CHECKING, Any

from switchtower.client import errors
from switchtower.tui import place
from switchtower.tui.state import slash
from switchtower.tui.state.conversation import Conversation
from switchtower.tui.state.draft import Draft

if TYPE_CHECKING:
    from switchtower.tui.app import TowerApp


class Opening:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self._turn = 0

    async def show(self, session_id: str) -> None:
        app = self._app
        self._turn += 1
        turn = self._turn
        about = await app.feed.about(session_id)
        if turn != self._turn:
            return  # somebody has chosen another one meanwhile
        app.open = conversation = Conversation(about)
        app.feed.follow(about)
        screen = app.main
        screen.set_at_home(False)
        if conversation.is_program and about.terminal is not None:
            screen.terminal.begin(about.terminal.cols, about.terminal.rows, takes_keys=conversation.is_running)
        else:
            screen.transcript.show(conversation.transcript, has_older=about.lastSeq > 0)
        screen.show_terminal(conversation.is_program)
        self._moved()
        if conversation.is_running and not conversation.is_program:
            # What was asked before the part that is read.
            for one in await app.feed.open_dialogs(session_id):
                conversation.asking.dialogs.setdefault(one.dialog_id, (0, one))
            app.deciding.ask_next()

    def begin_anew(self, root: str | None = None) -> None:
        """Nothing is started until something is said."""
        app = self._app
        self._turn += 1
        app.feed.close_session()
        was_open, app.open = app.open is not None, None
        if root is not None or was_open:
            app.draft = Draft.as_configured(app.settings, root or app.draft.root)
        screen = app.main
        screen.set_at_home(True)
        screen.show_terminal(False)
        screen.transcript.show(Conversation.empty(), has_older=False)
        screen.greet(app.draft)
        self._moved()

    def _moved(self) -> None:
        self.learn()
        self._app.drawing.all()
        self._app.drawing.sessions()

    def learn(self) -> None:
        """The files, skills and models that can be completed here."""

        async def quietly() -> None:
            try:
                await self._learn(self._app.root)
            except errors.ClientError:
                return  # completion is a convenience

        # As a function: what is cancelled before it began is then never made.
        work: Any = quietly
        self._app.run_worker(work, group="place", exclusive=True)

    async def _learn(self, root: str) -> None:
        app = self._app
        files = await asyncio.to_thread(place.files, root)
        if root == app.root:
            app.main.composer.files = files
        if app.feed.link == "connected":
            templates = await app.feed.templates(root)
            app.models = app.models or await app.feed.models()
            if root == app.root:
                app.main.composer.templates = [slash.Option(one.name, one.description) for one in templates]
