"""Screens of real programs, as they were recorded: with colours, a row a line, and their size in the name."""

import json
import re
from pathlib import Path
from typing import Any

from switchtower.engines.pty import prompts, rules
from switchtower.engines.pty.screen import TerminalScreen

CORPUS = Path(__file__).parent / "corpus"
SCREENS = CORPUS / "terminal_screens"
RULES = rules.load_rules()
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def load_expected() -> list[dict[str, Any]]:
    """Of each screen: for which tool it is read, and what must be found on it."""
    return [json.loads(line) for line in (CORPUS / "terminal_screens.jsonl").read_text().splitlines()]


def draw(name: str) -> TerminalScreen:
    found = re.search(r"\.(\d+)x(\d+)\.txt$", name)
    assert found is not None, name
    columns, rows = int(found[1]), int(found[2])
    return draw_text("\r\n".join(read_rows(name)[:rows]), columns=columns, rows=rows)


def read_rows(name: str) -> list[str]:
    """The rows up to the last one that shows something. Where the cursor was is not recorded; it stands behind that."""
    rows = (SCREENS / name).read_text().split("\n")
    while rows and not _ESCAPES.sub("", rows[-1]).strip():
        rows.pop()
    return rows


def read_plain_rows(name: str) -> list[str]:
    return [_ESCAPES.sub("", row).rstrip() for row in read_rows(name)]


def draw_text(text: str, *, columns: int = 80, rows: int = 24) -> TerminalScreen:
    screen = TerminalScreen(columns, rows)
    screen.feed(text)
    screen.update()
    return screen


def seek(screen: TerminalScreen, tool: str) -> prompts.ScreenPrompt | None:
    return prompts.find_prompt(
        screen.render_lines(),
        screen.cursor,
        tool,
        RULES,
        columns=screen.cols,
        history=screen.list_history(),
        scrolled=screen.scrolled,
        background=screen.find_background,
    )
