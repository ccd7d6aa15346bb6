"""What stands around the conversation, drawn from what the app knows: the lines above and below, and the list."""

from typing import TYPE_CHECKING

from switchtower.tui.state import meter
from switchtower.tui.state.conversation import Conversation
from switchtower.tui.widgets.lines import StatusLine, TopLine

if TYPE_CHECKING:
    from switchtower.tui.app import TowerApp


class Drawing:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self._beat = 0

    def all(self) -> None:
        if self._app.is_there:
            self._top()
            self._placeholder()
            self._status()

    def sessions(self) -> None:
        app = self._app
        if app.is_there:
            open_id = app.open.session_id if app.open is not None else None
            app.main.sessions.show(app.rows, now_ms=app.now_ms(), open_id=open_id)

    def tick(self) -> None:
        """What is under way moves, unless something stands before it."""
        app = self._app
        if app.is_there and app.open is not None and app.open.is_running and len(app.screen_stack) == 1:
            self._beat += 1
            if not app.open.is_program:
                app.main.transcript.tick()
            self._status()

    def _top(self) -> None:
        app = self._app
        about = app.open.about if app.open is not None else None
        name = "new session" if about is None else " ".join(about.title.split()) or f"…{about.sessionId[-6:]}"
        branch = about.branch if about is not None else None
        app.main.query_one(TopLine).show(
            name=name,
            where=app.root + (f" ({branch})" if branch else ""),
            link=app.feed.link,
            reason="Ctrl-R starts it" if app.feed.link == "lost" else "",
            waiting=len(app.inbox),
        )

    def _placeholder(self) -> None:
        app = self._app
        if app.open is None:
            app.main.composer.say("what shall we do?")
        elif app.open.is_running:
            app.main.composer.say("steer it: what you write reaches it at its next step")
        else:
            app.main.composer.say("go on")

    def _status(self) -> None:
        app = self._app
        line = app.main.query_one(StatusLine)
        conversation = app.open
        if conversation is None:
            wish = app.draft
            policy = wish.policy or ("" if wish.preset else app.settings.policy)
            what = meter.of(None, provider=wish.preset or wish.provider, model=wish.model, policy=policy)
            line.show(what, running_seconds=None, note="", queued=0, beat=0)
            return
        since = conversation.running_since_ms
        seconds = max(0.0, (app.now_ms() - since) / 1000) if since is not None and conversation.is_running else None
        if conversation.is_program:
            note = "Ctrl-] leaves it running" if conversation.is_running else _ending_of(conversation)
            seconds = None
        elif not app.main.transcript.at_end:
            note = "more below, Ctrl-End"
        else:
            note = conversation.doing() if conversation.is_running else ""
        line.show(
            meter.of(conversation.about),
            running_seconds=seconds,
            note=note,
            queued=len(conversation.about.queue) if conversation.is_running else 0,
            beat=self._beat,
        )


def _ending_of(conversation: Conversation) -> str:
    terminal = conversation.about.terminal
    code = terminal.exitCode if terminal is not None else None
    return "it has ended" + (f" with exit code {code}" if code is not None else "") + "; Esc goes back"
