"""The terminal UI: hears what happens, shows it, and asks the daemon for what the person wants.

It knows the daemon only through its feed. A session is started when the first message is sent, not before.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, ClassVar

from rich.segment import Segments
from rich.traceback import Traceback
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from switchtower import config
from switchtower.client import errors
from switchtower.protocols.push import extensions
from switchtower.tui import deciding, drawing, feed, hearing, opening, place, remembered, sending, themes, typist
from switchtower.tui.screens import approval, help, main
from switchtower.tui.state import harmless, roster, slash
from switchtower.tui.state.conversation import Conversation
from switchtower.tui.state.draft import Draft
from switchtower.tui.state.history import History
from switchtower.tui.state.inbox import Inbox
from switchtower.tui.widgets.composer import Composer
from switchtower.tui.widgets.lines import TopLine
from switchtower.tui.widgets.session_list import SessionList
from switchtower.tui.widgets.terminal import TerminalView
from switchtower.tui.widgets.transcript import TranscriptView

BEAT = 0.12
"""Seconds between two pictures of what moves."""


class TowerApp(App[int]):
    CSS_PATH = Path(__file__).with_name("styles.tcss")
    TITLE = "Switchtower"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+b", "sessions", "Sessions"),
        Binding("ctrl+n", "new", "New"),
        Binding("ctrl+t", "inbox", "Inbox"),
        Binding("ctrl+o", "fold_all", "Details"),
        Binding("f1", "help", "Help"),
        Binding("ctrl+r", "revive", "Start the daemon", show=False),
        Binding("ctrl+c", "interrupt", "Copy or leave", show=False),
        Binding("ctrl+q", "leave", "Leave", priority=True),
    ]

    def __init__(
        self,
        settings: config.Settings,
        source: "feed.Feed",
        *,
        root: str,
        session_id: str | None = None,
        now_ms: Callable[[], float] = lambda: time.time() * 1000,
        quiet: float = approval.QUIET,
    ) -> None:
        """`quiet`: seconds without a key before keys decide an approval."""
        super().__init__(ansi_color="NO_COLOR" in os.environ)
        self.settings = settings
        self.feed = source
        self.now_ms = now_ms
        self.rows: list[roster.Row] = []
        self.inbox = Inbox()
        self.draft = Draft.as_configured(settings, root)
        self.open: Conversation | None = None
        self.models: list[extensions.ModelListing] = []
        self.history = History(remembered.sent(settings))
        self._first_session = session_id
        self.drawing = drawing.Drawing(self)
        self.deciding = deciding.Deciding(self, quiet=quiet)
        self._typist = typist.Typist(source.type_keys, self.complain)
        self.opening = opening.Opening(self)
        self.sending = sending.Sending(self)
        self._leaving_at = 0.0
        self._approval_left_at = 0.0
        self._cancel_warned_at = 0.0
        self._is_ready = False
        self._warnings = hearing.ClientWarnings(self)

    # Coming and going

    def get_default_screen(self) -> Screen[Any]:
        return main.MainScreen(self.history)

    @property
    def main(self) -> main.MainScreen:
        screen = self.screen_stack[0]
        assert isinstance(screen, main.MainScreen)
        return screen

    def get_theme_variable_defaults(self) -> dict[str, str]:
        # Before our themes are known, styles that name our colours must be readable too.
        return {"muted": "#8b949e"}

    def _fatal_error(self) -> None:
        # A mistake of ours. Textual would print the values of variables too, and people's words are among them.
        self.bell()
        traceback = Traceback(show_locals=False, width=None)
        self._exit_renderables.append(Segments(self.console.render(traceback, self.console.options)))
        self._close_messages_no_wait()

    def on_mount(self) -> None:
        for theme in (themes.DARK, themes.LIGHT):
            self.register_theme(theme)
        chosen = remembered.theme(self.settings)
        self.theme = chosen if chosen in themes.NAMES else themes.probable(os.environ)

    def on_unmount(self) -> None:
        logging.getLogger("switchtower.client").removeHandler(self._warnings)

    def on_ready(self) -> None:
        self._is_ready = True
        self.main.composer.values = self.sending.commands.values
        self.main.greet(self.draft)
        self.drawing.all()
        logging.getLogger("switchtower.client").addHandler(self._warnings)
        self.run_worker(self.feed.run(hearing.Hearing(self)), group="feed")
        self.set_interval(BEAT, self.drawing.tick)
        self.set_interval(10.0, self.drawing.sessions)
        self.opening.learn()
        if self._first_session is not None:
            self.do(self.opening.show(self._first_session))

    @property
    def is_there(self) -> bool:
        """Whether there is anything to draw on: not yet at the beginning, not any more at the end."""
        return self._is_ready and self.is_running

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """In the background. What goes wrong is said, with its remedy."""

        async def guarded() -> None:
            try:
                await work
            except errors.ClientError as problem:
                self.complain(problem)
            except OSError as problem:
                self.complain(errors.ClientError(f"{problem.strerror or problem}"))

        self.run_worker(guarded(), group="work")

    def complain(self, problem: errors.ClientError) -> None:
        self.notify(harmless.prose(str(problem)), severity="error", timeout=8, markup=False)

    def say(self, text: str) -> None:
        self.notify(harmless.prose(text), timeout=5, markup=False)

    # Where one is

    @property
    def root(self) -> str:
        return self.open.about.rootPath if self.open is not None else self.draft.root

    def name_of(self, session_id: str) -> str:
        row = next((row for row in self.rows if row.session_id == session_id), None)
        return row.name if row is not None else session_id

    # What the person says

    def on_composer_written(self, message: Composer.Written) -> None:
        self.sending.written(message.text)

    def on_composer_left(self, message: Composer.Left) -> None:
        self.action_cancel()

    def on_text_area_changed(self) -> None:
        if self.is_there and not self.main.composer.text.strip():
            self.deciding.ask_next()  # an approval may have waited for the draft

    def on_main_screen_uncovered(self) -> None:
        self.deciding.ask_next()

    def note_approval_left(self) -> None:
        """An approval was closed without a decision: the next Esc may have been meant for it."""
        self._approval_left_at = self.now_ms()

    def action_cancel(self) -> None:
        """Esc. Where it may have been meant for an approval, it takes one more."""
        if self.open is None or not self.open.is_running:
            return
        now = self.now_ms()
        may_mean_approval = now - self._approval_left_at < 1_000 or bool(self.inbox.of(self.open.session_id))
        if may_mean_approval and now - self._cancel_warned_at > 3_000:
            self._cancel_warned_at = now
            self.say("Esc again cancels the run. Ctrl-T opens the inbox.")
        else:
            self.do(self.feed.cancel(self.open.session_id))

    # The rest of what a person does

    def action_inbox(self) -> None:
        self.do(self.deciding.choose())

    def on_top_line_inbox_wanted(self, message: TopLine.InboxWanted) -> None:
        self.action_inbox()

    def on_session_list_chosen(self, message: SessionList.Chosen) -> None:
        if self.main.is_narrow:
            self.main.show_list(False)
        self.do(self.opening.show(message.session_id))

    def on_session_list_wished(self, message: SessionList.Wished) -> None:
        self.sending.commands.wish(message.what, message.session_id)

    def on_session_list_left(self, message: SessionList.Left) -> None:
        if self.main.is_narrow and self.open is not None:
            self.main.show_list(False)
        self._back_to_work()

    def _back_to_work(self) -> None:
        if self.open is not None and self.open.is_program:
            self.main.terminal.focus()
        else:
            self.main.composer.page.focus()

    def on_transcript_view_wants_older(self, message: TranscriptView.WantsOlder) -> None:
        async def load(conversation: Conversation) -> None:
            page = await self.feed.older(conversation.session_id, conversation.transcript.first_seq)
            if conversation is self.open:
                count = conversation.transcript.prepend(page.events)
                self.main.transcript.prepended(count, has_older=not page.is_first)

        if self.open is not None:
            self.do(load(self.open))

    def on_transcript_view_followed(self, message: TranscriptView.Followed) -> None:
        self.drawing.all()

    def on_terminal_view_typed(self, message: TerminalView.Typed) -> None:
        if self.open is not None:
            self._typist.type(self.open.session_id, message.keys)

    def on_terminal_view_resized(self, message: TerminalView.Resized) -> None:
        async def resize(session_id: str) -> None:
            try:
                await self.feed.resize(session_id, message.cols, message.rows)
            except errors.RequestFailed:
                return  # it has ended in the meantime

        if self.open is not None and self.open.is_program and self.open.is_running:
            self.do(resize(self.open.session_id))

    def on_terminal_view_left(self, message: TerminalView.Left) -> None:
        self.main.show_list(True)
        self.main.sessions.focus_names()

    def action_sessions(self) -> None:
        """To the list, and back."""
        screen = self.main
        if screen.is_list_shown and screen.sessions.has_focus_within:
            if screen.is_narrow and self.open is not None:
                screen.show_list(False)
            self._back_to_work()
        else:
            screen.show_list(True)
            screen.sessions.focus_names()

    def action_new(self) -> None:
        self.opening.begin_anew()

    def action_fold_all(self) -> None:
        self.main.transcript.fold_all()

    def action_help(self) -> None:
        if not any(isinstance(screen, help.HelpScreen) for screen in self.screen_stack):
            self.push_screen(help.HelpScreen())

    def action_revive(self) -> None:
        if self.feed.link != "connected":
            self.say("starting the daemon")
            self.do(self.feed.revive())

    def action_interrupt(self) -> None:
        """Twice leaves: a single one is too easily pressed."""
        composer = self.main.composer
        now = self.now_ms()
        if composer.text and composer.page.has_focus:
            composer.history.add(composer.text)
            composer.put("")
        elif now - self._leaving_at < 2_000:
            self.action_leave()
        else:
            self._leaving_at = now
            self.say("Ctrl-C again leaves; what runs goes on. Esc cancels a run")

    def action_leave(self) -> None:
        running = self.open is not None and self.open.is_running
        where = f"it goes on; come back with `tower attach {self.open.session_id}`" if running and self.open is not None else None
        self.exit(0, message=where)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # All keys are the program's while one types into it.
        if isinstance(self.focused, TerminalView) and self.open is not None and self.open.is_running:
            return action not in ("leave", "command_palette", "interrupt", "sessions", "new", "inbox", "fold_all", "help")
        return not (action == "new" and len(self.screen_stack) > 1)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        for command in slash.COMMANDS:
            yield SystemCommand(f"/{command.name}", command.about, self._runner(command))

    def _runner(self, command: slash.Command) -> Callable[[], None]:
        return lambda: self.sending.commands.run(slash.Typed(command, ""))


def run(settings: config.Settings, *, session_id: str | None = None, workspace: str | None = None) -> int:
    """Opens the terminal UI and returns the exit code. `workspace` is where new sessions work; the current folder by default."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise errors.ClientError("the terminal UI needs a terminal", hint='use `tower run "TEXT"` in scripts')
    root = place.root_of(workspace or ".")
    app = TowerApp(settings, feed.Feed(settings), root=root, session_id=session_id)
    code = app.run()
    return app.return_code or code or 0
