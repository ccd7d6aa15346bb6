"""What the feed tells, put where it belongs: into the list, the inbox and the open conversation."""

import logging
from typing import TYPE_CHECKING

from switchtower.client import errors
from switchtower.client.frames import Event
from switchtower.protocols.push import extensions
from switchtower.tui.feed import Link
from switchtower.tui.state import harmless, roster
from switchtower.tui.state.conversation import Conversation
from switchtower.tui.state.inbox import Pending

if TYPE_CHECKING:
    from switchtower.tui.app import TowerApp


class ClientWarnings(logging.Handler):
    """Shows what the client warns of, such as a daemon of another version, where a command would print it on stderr."""

    def __init__(self, app: "TowerApp") -> None:
        super().__init__(logging.WARNING)
        self._app = app

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().removeprefix("tower: ")
        self._app.notify(harmless.prose(message), severity="warning", timeout=10, markup=False)


class Hearing:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self._reason = ""

    def link_changed(self, link: Link, reason: str) -> None:
        app = self._app
        if not app.is_there:
            return
        if reason and reason != self._reason:
            app.notify(harmless.prose(reason), severity="warning", timeout=6, markup=False)
        self._reason = reason
        if link == "connected":
            app.opening.learn()
        app.drawing.all()

    def sessions_listed(self, rows: list[roster.Row]) -> None:
        self._app.rows = rows
        self._app.drawing.sessions()
        self._app.drawing.all()

    def approvals_listed(self, pending: list[Pending], sessions: set[str] | None) -> None:
        # Of the open session, its events know more than any list.
        open_id = self._app.open.session_id if self._app.open is not None else None
        self._app.inbox.listed(pending, sessions=sessions, but=open_id)
        self._app.deciding.ask_next()

    def session_told(self, about: extensions.SessionInfo) -> None:
        app = self._app
        if app.is_there and app.open is not None and app.open.session_id == about.sessionId:
            app.open.told(about)
            app.drawing.all()

    def session_refused(self, session_id: str, problem: errors.ClientError) -> None:
        if self._app.is_there:
            self._app.complain(problem)

    def events_came(self, session_id: str, events: list[Event]) -> None:
        app = self._app
        if not app.is_there or app.open is None or app.open.session_id != session_id:
            return
        app.open.extend(events)
        name = app.name_of(session_id)
        for event in events:
            app.inbox.saw(event, session_name=name)
        if app.open.is_program:
            self._program(app.open, events)
        else:
            app.main.transcript.changed()
        app.deciding.ask_next()

    def _program(self, conversation: Conversation, events: list[Event]) -> None:
        terminal = self._app.main.terminal
        if (size := conversation.size(events)) is not None:
            terminal.set_size(*size)
        if text := conversation.output(events):
            terminal.feed(text)
        if not conversation.is_running:
            terminal.ended()
