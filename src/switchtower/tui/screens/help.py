"""The keys and the commands."""

from collections.abc import Iterator

from rich.text import Text

from switchtower.tui.screens.reading import TextViewerScreen
from switchtower.tui.state import slash

_KEYS = (
    ("Enter", "send; while it works, steer it"),
    ("Ctrl-J", "a new line (also Shift-Enter, Alt-Enter, or \\ and Enter)"),
    ("Up, Down", "what was sent before"),
    ("Esc", "cancel the run; close what is open"),
    ("Tab", "complete a command or a file; else to the next part"),
    ("PgUp, PgDn", "read back while you write; Ctrl-Home, Ctrl-End"),
    ("Ctrl-O", "unfold everything: thinking, arguments, output"),
    ("[ ] Enter", "in the transcript: from card to card, and unfold one"),
    ("Ctrl-B", "the sessions: type / to filter, n new, r rename, f fork, d delete"),
    ("Ctrl-T", "inbox: approvals of all sessions"),
    ("Ctrl-N", "a new session"),
    ("Ctrl-P", "all commands, to search in"),
    ("Ctrl-R", "start the daemon when it is away"),
    ("Ctrl-C", "copy what is selected; clear the input; twice leaves"),
    ("Ctrl-Q", "leave: what runs goes on"),
)
_DECIDING = (
    ("y", "approve once"),
    ("a", "allow the rule shown for the rest of the session"),
    ("Ctrl-Y", "confirm: needed for a, and for destructive actions"),
    ("n", "deny, with an optional reason; the run continues"),
    ("d", "deny and stop the run"),
    ("Esc", "decide later; the approval stays in the inbox"),
)


class HelpScreen(TextViewerScreen):
    def __init__(self) -> None:
        super().__init__("Help", _list_help_lines())


def _list_help_lines() -> Iterator[Text]:
    yield Text("Keys", "heading")
    yield from (_paint_help_row(key, about) for key, about in _KEYS)
    yield Text("")
    yield Text("When something waits for your decision", "heading")
    yield from (_paint_help_row(key, about) for key, about in _DECIDING)
    yield Text("")
    yield Text("In a program's terminal", "heading")
    yield _paint_help_row("Ctrl-]", "leave it running; every other key is the program's")
    yield Text("")
    yield Text("Commands", "heading")
    for command in slash.COMMANDS:
        yield _paint_help_row(f"/{command.name} {command.arguments}".rstrip(), command.about)
    yield Text("")
    yield Text("Skills and prompts of the workspace are commands too, see /skills. @ names a file.", "dim")


def _paint_help_row(key: str, about: str) -> Text:
    return Text.assemble((f"  {key:<24} ", "accent"), about)
