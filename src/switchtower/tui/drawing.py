"""What stands around the conversation, drawn from what the app knows: the lines above and below, and the list."""

from typing import TYPE_CHECKING

from switchtower.tui.state import meter
from switchtower.tui.state.conversation import SessionModel
from switchtower.tui.widgets.lines import StatusLine, TopLine

if TYPE_CHECKING:
    from switchtower.tui.app import TowerApp


class StatusRefresher:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self._frame = 0

    def refresh_all(self) -> None:
        if self._app.is_drawable:
            self._refresh_top_line()
            self._refresh_placeholder()
            self._refresh_status_line()

    def refresh_sessions(self) -> None:
        app = self._app
        if app.is_drawable:
            open_id = app.session.session_id if app.session is not None else None
            app.main.sessions.show(app.rows, now_ms=app.now_ms(), open_id=open_id)

    def tick(self) -> None:
        """What is under way moves, unless something stands before it."""
        app = self._app
        if app.is_drawable and app.session is not None and app.session.is_running and len(app.screen_stack) == 1:
            self._frame += 1
            if not app.session.is_program:
                app.main.transcript.tick()
            self._refresh_status_line()

    def _refresh_top_line(self) -> None:
        app = self._app
        about = app.session.info if app.session is not None else None
        name = "new session" if about is None else " ".join(about.title.split()) or f"…{about.sessionId[-6:]}"
        branch = about.branch if about is not None else None
        app.main.query_one(TopLine).show(
            name=name,
            where=app.root + (f" ({branch})" if branch else ""),
            link=app.feed.link,
            reason="Ctrl-R starts it" if app.feed.link == "lost" else "",
            waiting=len(app.inbox),
        )

    def _refresh_placeholder(self) -> None:
        app = self._app
        if app.session is None:
            app.main.composer.set_placeholder("what shall we do?")
        elif app.session.is_running:
            app.main.composer.set_placeholder("steer it: what you write reaches it at its next step")
        else:
            app.main.composer.set_placeholder("go on")

    def _refresh_status_line(self) -> None:
        app = self._app
        line = app.main.query_one(StatusLine)
        conversation = app.session
        if conversation is None:
            wish = app.draft
            policy = wish.policy or ("" if wish.preset else app.settings.policy)
            what = meter.make_meter(None, provider=wish.preset or wish.provider, model=wish.model, policy=policy)
            line.show(what, running_seconds=None, note="", queued=0, beat=0)
            return
        since = conversation.running_since_ms
        seconds = max(0.0, (app.now_ms() - since) / 1000) if since is not None and conversation.is_running else None
        if conversation.is_program:
            note = "Ctrl-] leaves it running" if conversation.is_running else _describe_ending(conversation)
            seconds = None
        elif not app.main.transcript.is_at_end:
            note = "more below, Ctrl-End"
        else:
            note = conversation.describe_activity() if conversation.is_running else ""
        line.show(
            meter.make_meter(conversation.info),
            running_seconds=seconds,
            note=note,
            queued=len(conversation.info.queue) if conversation.is_running else 0,
            beat=self._frame,
        )


def _describe_ending(conversation: SessionModel) -> str:
    terminal = conversation.info.terminal
    code = terminal.exitCode if terminal is not None else None
    return "it has ended" + (f" with exit code {code}" if code is not None else "") + "; Esc goes back"
