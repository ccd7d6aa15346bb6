"""What the feed tells, put where it belongs: into the list, the inbox and the open conversation."""

import logging
from typing import TYPE_CHECKING

from switchtower.client import errors
from switchtower.client.frames import PushEvent
from switchtower.protocols.push import extensions
from switchtower.tui.feed import Link
from switchtower.tui.state import harmless, roster
from switchtower.tui.state.conversation import SessionModel
from switchtower.tui.state.inbox import InboxItem

if TYPE_CHECKING:
    from switchtower.tui.app import TowerApp


class ClientWarnings(logging.Handler):
    """Shows what the client warns of, such as a daemon of another version, where a command would print it on stderr."""

    def __init__(self, app: "TowerApp") -> None:
        super().__init__(logging.WARNING)
        self._app = app

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().removeprefix("tower: ")
        self._app.notify(harmless.escape_prose(message), severity="warning", timeout=10, markup=False)


class FeedHandler:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self._reason = ""

    def on_link_changed(self, link: Link, reason: str) -> None:
        app = self._app
        if not app.is_drawable:
            return
        if reason and reason != self._reason:
            app.notify(harmless.escape_prose(reason), severity="warning", timeout=6, markup=False)
        self._reason = reason
        if link == "connected":
            app.opener.load_completions()
        app.status.refresh_all()

    def on_sessions_listed(self, rows: list[roster.SessionListRow]) -> None:
        self._app.rows = rows
        self._app.status.refresh_sessions()
        self._app.status.refresh_all()

    def on_approvals_listed(self, pending: list[InboxItem], sessions: set[str] | None) -> None:
        # Of the open session, its events know more than any list.
        open_id = self._app.session.session_id if self._app.session is not None else None
        self._app.inbox.apply_listing(pending, sessions=sessions, but=open_id)
        self._app.prompter.ask_next()

    def on_session_info(self, about: extensions.SessionInfo) -> None:
        app = self._app
        if app.is_drawable and app.session is not None and app.session.session_id == about.sessionId:
            app.session.update_info(about)
            app.status.refresh_all()

    def on_session_refused(self, session_id: str, problem: errors.ClientError) -> None:
        if self._app.is_drawable:
            self._app.show_error(problem)

    def on_events(self, session_id: str, events: list[PushEvent]) -> None:
        app = self._app
        if not app.is_drawable or app.session is None or app.session.session_id != session_id:
            return
        app.session.extend(events)
        name = app.get_session_name(session_id)
        for event in events:
            app.inbox.on_event(event, session_name=name)
        if app.session.is_program:
            self._update_program(app.session, events)
        else:
            app.main.transcript.refresh_end()
        app.prompter.ask_next()

    def _update_program(self, conversation: SessionModel, events: list[PushEvent]) -> None:
        terminal = self._app.main.terminal
        if (size := conversation.find_resize(events)) is not None:
            terminal.set_size(*size)
        if text := conversation.collect_output(events):
            terminal.feed(text)
        if not conversation.is_running:
            terminal.mark_ended()
