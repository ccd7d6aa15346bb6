"""The main screen: sessions at the left, the transcript or a program's terminal in the middle, the input below.

It shows what the app gives it and reports the user's actions as messages; the app decides what they mean.
"""

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Footer

from switchtower.presentation import safe_text
from switchtower.tui.state import session
from switchtower.tui.state.input import InputHistory
from switchtower.tui.widgets.composer import Composer
from switchtower.tui.widgets.lines import StatusLine, TopLine
from switchtower.tui.widgets.session_list import SessionList
from switchtower.tui.widgets.terminal import TerminalView
from switchtower.tui.widgets.transcript import TranscriptView

NARROW = 100
"""The width in columns below which the list covers the transcript, and is visible only while the user uses it."""

_WELCOME = (
    "Write below and press Enter: that starts a session in this folder.",
    "@ names a file, / gives a command, Ctrl-B goes to the sessions, F1 helps.",
)


class MainScreen(Screen[None]):
    class Uncovered(Message):
        """No other screen covers this one any more."""

    def __init__(self, history: InputHistory) -> None:
        super().__init__(id="main")
        self._history = history
        self._list_wanted: bool | None = None
        """The user's choice; None means that the width decides."""
        self._is_home_layout = True

    def compose(self) -> ComposeResult:
        yield TopLine(id="top")
        with Horizontal(id="middle"):
            yield SessionList(id="sessions")
            with Vertical(id="conversation"):
                with ContentSwitcher(initial="transcript", id="stage"):
                    yield TranscriptView(id="transcript")
                    yield TerminalView(id="terminal")
                yield Composer(self._history, id="composer")
        yield StatusLine(id="status")
        yield Footer(id="keys", compact=True)

    @property
    def sessions(self) -> SessionList:
        return self.query_one(SessionList)

    @property
    def transcript(self) -> TranscriptView:
        return self.query_one(TranscriptView)

    @property
    def terminal(self) -> TerminalView:
        return self.query_one(TerminalView)

    @property
    def composer(self) -> Composer:
        return self.query_one(Composer)

    def on_mount(self) -> None:
        self.composer.page.focus()
        self._update_list_layout()

    def on_resize(self, event: events.Resize) -> None:
        self._update_list_layout()

    def on_screen_resume(self) -> None:
        self.post_message(self.Uncovered())

    # The session list

    @property
    def is_narrow(self) -> bool:
        return self.size.width < NARROW

    def set_home_layout(self, at_home: bool) -> None:
        """Shows the list while no session is open, because there is space for it."""
        if at_home != self._is_home_layout:
            self._is_home_layout = at_home
            if self.is_narrow:
                self._list_wanted = None
            self._update_list_layout()

    def show_list(self, wanted: bool) -> None:
        self._list_wanted = wanted
        self._update_list_layout()

    @property
    def is_list_visible(self) -> bool:
        return bool(self.sessions.display)

    def _update_list_layout(self) -> None:
        usual = self._is_home_layout or not self.is_narrow
        self.sessions.display = usual if self._list_wanted is None else self._list_wanted
        self.set_class(self.is_narrow, "narrow")

    # The middle of the screen

    def show_terminal(self, shown: bool) -> None:
        self.query_one(ContentSwitcher).current = "terminal" if shown else "transcript"
        self.composer.display = not shown
        self.set_class(shown, "at-program")
        if shown:
            self.terminal.focus()
        else:
            self.composer.page.focus()

    def show_greeting(self, wish: session.SessionDraft) -> None:
        lines = [Text(), Text("What shall we do?", "heading"), Text(f"in {safe_text.to_safe_line(wish.root)}", "dim"), Text()]
        self.transcript.show_greeting([*lines, *(Text(line, "dim") for line in _WELCOME)])

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape" and self.transcript.has_focus:
            event.stop()
            self.composer.page.focus()

    def on_composer_scroll_key_pressed(self, message: Composer.ScrollKeyPressed) -> None:
        view = self.transcript
        page = max(1, view.size.height - 2)
        match message.key:
            case "ctrl+home":
                view.action_oldest()
            case "ctrl+end":
                view.action_newest()
            case "pageup":
                view.scroll_relative(y=-page, animate=False)
            case "pagedown":
                view.scroll_relative(y=page, animate=False)
