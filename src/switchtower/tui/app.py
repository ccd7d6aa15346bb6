"""The Textual application: it receives updates from the feed, shows them, and sends the user's requests to the daemon.

It knows the daemon only through its feed. A session starts when the user sends the first message, not before.
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
from switchtower.client import workspace as client_workspace
from switchtower.presentation import safe_text
from switchtower.protocols.push import extension_messages
from switchtower.tui import controller, feed, preferences
from switchtower.tui.screens import approvals, dialogs
from switchtower.tui.screens import main as screens_main
from switchtower.tui.state import input, session_rows
from switchtower.tui.state.input import InputHistory
from switchtower.tui.state.session import SessionDraft, SessionModel
from switchtower.tui.state.session_rows import ApprovalInbox
from switchtower.tui.widgets.composer import Composer
from switchtower.tui.widgets.lines import TopLine
from switchtower.tui.widgets.session_list import SessionList
from switchtower.tui.widgets.terminal import TerminalView
from switchtower.tui.widgets.transcript import TranscriptView

ANIMATION_SECONDS = 0.12
"""Seconds between two frames of an animation."""


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
        source: "feed.DaemonFeed",
        *,
        root: str,
        session_id: str | None = None,
        now_ms: Callable[[], float] = lambda: time.time() * 1000,
        quiet: float = approvals.QUIET_SECONDS,
    ) -> None:
        """`quiet` is the number of seconds without a keystroke after which keys decide an approval."""
        super().__init__(ansi_color="NO_COLOR" in os.environ)
        self.settings = settings
        self.feed = source
        self.now_ms = now_ms
        self.rows: list[session_rows.SessionListRow] = []
        self.inbox = ApprovalInbox()
        self.draft = SessionDraft.from_settings(settings, root)
        self.session: SessionModel | None = None
        self.models: list[extension_messages.ModelListing] = []
        self.history = InputHistory(preferences.load_history(settings))
        self._first_session = session_id
        self.status = controller.StatusRefresher(self)
        self.prompter = controller.PendingPrompter(self, quiet=quiet)
        self._key_sender = feed.KeySender(source.type_keys, self.show_error)
        self.opener = controller.SessionOpener(self)
        self.sender = controller.MessageSender(self)
        self._quit_requested_at = 0.0
        self._approval_closed_at = 0.0
        self._cancel_warned_at = 0.0
        self._is_ready = False
        self._warnings = controller.ClientWarnings(self)

    # Start and exit

    def get_default_screen(self) -> Screen[Any]:
        return screens_main.MainScreen(self.history)

    @property
    def main(self) -> screens_main.MainScreen:
        screen = self.screen_stack[0]
        assert isinstance(screen, screens_main.MainScreen)
        return screen

    def get_theme_variable_defaults(self) -> dict[str, str]:
        # Styles that name our colours must also be readable before our themes are registered.
        return {"muted": "#8b949e"}

    def _fatal_error(self) -> None:
        # An internal error. Textual would also print the values of variables, which include users' messages.
        self.bell()
        traceback = Traceback(show_locals=False, width=None)
        self._exit_renderables.append(Segments(self.console.render(traceback, self.console.options)))
        self._close_messages_no_wait()

    def on_mount(self) -> None:
        for theme in (preferences.DARK, preferences.LIGHT):
            self.register_theme(theme)
        chosen = preferences.load_theme(self.settings)
        self.theme = chosen if chosen in preferences.NAMES else preferences.guess_theme(os.environ)

    def on_unmount(self) -> None:
        logging.getLogger("switchtower.client").removeHandler(self._warnings)

    def on_ready(self) -> None:
        self._is_ready = True
        self.main.composer.values = self.sender.commands.list_values
        self.main.show_greeting(self.draft)
        self.status.refresh_all()
        logging.getLogger("switchtower.client").addHandler(self._warnings)
        self.run_worker(self.feed.run(controller.FeedHandler(self)), group="feed")
        self.set_interval(ANIMATION_SECONDS, self.status.tick)
        self.set_interval(10.0, self.status.refresh_sessions)
        self.opener.load_completions()
        if self._first_session is not None:
            self.run_in_background(self.opener.open_session(self._first_session))

    @property
    def is_drawable(self) -> bool:
        """True while the screen can be drawn: not before the app has started, and not after it has stopped."""
        return self._is_ready and self.is_running

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the work in the background and shows its errors, with the remedy."""

        async def guarded() -> None:
            try:
                await work
            except errors.ClientError as problem:
                self.show_error(problem)
            except OSError as problem:
                self.show_error(errors.ClientError(f"{problem.strerror or problem}"))

        self.run_worker(guarded(), group="work")

    def show_error(self, problem: errors.ClientError) -> None:
        self.notify(safe_text.escape_prose(str(problem)), severity="error", timeout=8, markup=False)

    def show_notice(self, text: str) -> None:
        self.notify(safe_text.escape_prose(text), timeout=5, markup=False)

    # Current session and folder

    @property
    def root(self) -> str:
        return self.session.info.rootPath if self.session is not None else self.draft.root

    def get_session_name(self, session_id: str) -> str:
        row = next((row for row in self.rows if row.session_id == session_id), None)
        return row.name if row is not None else session_id

    # Messages from the composer

    def on_composer_message_submitted(self, message: Composer.MessageSubmitted) -> None:
        self.sender.submit(message.text)

    def on_composer_escape_pressed(self, message: Composer.EscapePressed) -> None:
        self.action_cancel()

    def on_text_area_changed(self) -> None:
        if self.is_drawable and not self.main.composer.text.strip():
            self.prompter.ask_next()  # an approval may have waited until the draft was sent

    def on_main_screen_uncovered(self) -> None:
        self.prompter.ask_next()

    def record_approval_closed(self) -> None:
        """Records that an approval was closed without a decision: the next Esc may have been meant for it."""
        self._approval_closed_at = self.now_ms()

    def action_cancel(self) -> None:
        """Handles Esc. If the key may have been meant for an approval, the user must press it again."""
        if self.session is None or not self.session.is_running:
            return
        now = self.now_ms()
        may_mean_approval = now - self._approval_closed_at < 1_000 or bool(self.inbox.list_for_session(self.session.session_id))
        if may_mean_approval and now - self._cancel_warned_at > 3_000:
            self._cancel_warned_at = now
            self.show_notice("Esc again cancels the run. Ctrl-T opens the inbox.")
        else:
            self.run_in_background(self.feed.cancel_run(self.session.session_id))

    # Other actions

    def action_inbox(self) -> None:
        self.run_in_background(self.prompter.open_inbox())

    def on_top_line_inbox_requested(self, message: TopLine.InboxRequested) -> None:
        self.action_inbox()

    def on_session_list_session_chosen(self, message: SessionList.SessionChosen) -> None:
        if self.main.is_narrow:
            self.main.show_list(False)
        self.run_in_background(self.opener.open_session(message.session_id))

    def on_session_list_action_requested(self, message: SessionList.ActionRequested) -> None:
        self.sender.commands.run_list_action(message.what, message.session_id)

    def on_session_list_list_closed(self, message: SessionList.ListClosed) -> None:
        if self.main.is_narrow and self.session is not None:
            self.main.show_list(False)
        self._focus_main_view()

    def _focus_main_view(self) -> None:
        if self.session is not None and self.session.is_program:
            self.main.terminal.focus()
        else:
            self.main.composer.page.focus()

    def on_transcript_view_older_requested(self, message: TranscriptView.OlderRequested) -> None:
        async def load(conversation: SessionModel) -> None:
            page = await self.feed.load_older(conversation.session_id, conversation.transcript.first_seq)
            if conversation is self.session:
                count = conversation.transcript.prepend(page.events)
                self.main.transcript.insert_blocks(count, has_older=not page.is_first)

        if self.session is not None:
            self.run_in_background(load(self.session))

    def on_transcript_view_follow_changed(self, message: TranscriptView.FollowChanged) -> None:
        self.status.refresh_all()

    def on_terminal_view_keys_typed(self, message: TerminalView.KeysTyped) -> None:
        if self.session is not None:
            self._key_sender.enqueue(self.session.session_id, message.keys)

    def on_terminal_view_view_resized(self, message: TerminalView.ViewResized) -> None:
        async def resize(session_id: str) -> None:
            try:
                await self.feed.resize_terminal(session_id, message.cols, message.rows)
            except errors.RequestFailed:
                return  # the session has ended in the meantime

        if self.session is not None and self.session.is_program and self.session.is_running:
            self.run_in_background(resize(self.session.session_id))

    def on_terminal_view_focus_released(self, message: TerminalView.FocusReleased) -> None:
        self.main.show_list(True)
        self.main.sessions.focus_list()

    def action_sessions(self) -> None:
        """Moves the focus to the session list, or back."""
        screen = self.main
        if screen.is_list_visible and screen.sessions.has_focus_within:
            if screen.is_narrow and self.session is not None:
                screen.show_list(False)
            self._focus_main_view()
        else:
            screen.show_list(True)
            screen.sessions.focus_list()

    def action_new(self) -> None:
        self.opener.start_new()

    def action_fold_all(self) -> None:
        self.main.transcript.fold_all()

    def action_help(self) -> None:
        if not any(isinstance(screen, dialogs.HelpScreen) for screen in self.screen_stack):
            self.push_screen(dialogs.HelpScreen())

    def action_revive(self) -> None:
        if self.feed.link != "connected":
            self.show_notice("starting the daemon")
            self.run_in_background(self.feed.start_daemon())

    def action_interrupt(self) -> None:
        """Quits on the second press within two seconds: a single one is too easily pressed by accident."""
        composer = self.main.composer
        now = self.now_ms()
        if composer.text and composer.page.has_focus:
            composer.history.add(composer.text)
            composer.set_text("")
        elif now - self._quit_requested_at < 2_000:
            self.action_leave()
        else:
            self._quit_requested_at = now
            self.show_notice("Ctrl-C again leaves; what runs goes on. Esc cancels a run")

    def action_leave(self) -> None:
        running = self.session is not None and self.session.is_running
        where = (
            f"it goes on; come back with `tower attach {self.session.session_id}`"
            if running and self.session is not None
            else None
        )
        self.exit(0, message=where)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # While the user types into a program, the program gets every key.
        if isinstance(self.focused, TerminalView) and self.session is not None and self.session.is_running:
            return action not in ("leave", "command_palette", "interrupt", "sessions", "new", "inbox", "fold_all", "help")
        return not (action == "new" and len(self.screen_stack) > 1)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        for command in input.COMMANDS:
            yield SystemCommand(f"/{command.name}", command.about, self._make_command_runner(command))

    def _make_command_runner(self, command: input.SlashCommand) -> Callable[[], None]:
        return lambda: self.sender.commands.run(input.SlashInput(command, ""))


def run_app(settings: config.Settings, *, session_id: str | None = None, workspace: str | None = None) -> int:
    """Opens the terminal UI and returns the exit code. New sessions work in `workspace`, by default the current folder."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise errors.ClientError("the terminal UI needs a terminal", hint='use `tower run "TEXT"` in scripts')
    root = client_workspace.resolve_folder(workspace or ".")
    app = TowerApp(settings, feed.DaemonFeed(settings), root=root, session_id=session_id)
    code = app.run()
    return app.return_code or code or 0
