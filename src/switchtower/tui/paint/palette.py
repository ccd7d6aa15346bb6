"""The colours of a transcript for dark and light terminals, and coloured diffs.

Every meaning also has a sign, so that no information depends on colour alone.
"""

from collections.abc import Iterator
from io import StringIO

from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from switchtower.presentation import approval_text

_DARK = {
    "you": "bold #7cc4ff",
    "you.text": "#e6edf3",
    "dim": "#8b949e",
    "faint": "#6e7681",
    "good": "#56d364",
    "bad": "#ff7b72",
    "warn": "#e3b341",
    "accent": "#7cc4ff",
    "name": "bold",
    "thought": "italic #8b949e",
    "output": "#b1bac4",
    "added": "#7ee787 on #12261e",
    "removed": "#ffa198 on #2d1618",
    "hunk": "#79c0ff",
    "code": "#ffa657",
    "heading": "bold #7cc4ff",
    "link": "underline #79c0ff",
    "picked": "on #21262d",
}
_LIGHT = {
    "you": "bold #0550ae",
    "you.text": "#1f2328",
    "dim": "#59636e",
    "faint": "#818b98",
    "good": "#116329",
    "bad": "#a40e26",
    "warn": "#7d4e00",
    "accent": "#0550ae",
    "name": "bold",
    "thought": "italic #59636e",
    "output": "#3d444d",
    "added": "#116329 on #dafbe1",
    "removed": "#82071e on #ffebe9",
    "hunk": "#0550ae",
    "code": "#953800",
    "heading": "bold #0550ae",
    "link": "underline #0550ae",
    "picked": "on #eaeef2",
}
CODE_THEMES = {True: "github-dark", False: "friendly"}
_MARKDOWN = {
    "markdown.code": "code",
    "markdown.code_block": "code",
    "markdown.h1": "heading",
    "markdown.h2": "heading",
    "markdown.h3": "heading",
    "markdown.h4": "heading",
    "markdown.h5": "heading",
    "markdown.h6": "heading",
    "markdown.link": "link",
    "markdown.link_url": "link",
    "markdown.block_quote": "dim",
    "markdown.item.bullet": "accent",
    "markdown.item.number": "accent",
    "markdown.hr": "faint",
    "markdown.table.border": "faint",
    "markdown.table.header": "name",
}


class Palette:
    """Maps names to styles, with a console that renders without output."""

    def __init__(self, *, dark: bool) -> None:
        self.dark = dark
        self.code_theme = CODE_THEMES[dark]
        styles = _DARK if dark else _LIGHT
        theme = Theme({**styles, **{name: styles[meaning] for name, meaning in _MARKDOWN.items()}})
        self.console = Console(
            file=StringIO(),
            force_terminal=True,
            color_system="truecolor",
            theme=theme,
            width=80,
            legacy_windows=False,
            highlight=False,
        )


DARK = Palette(dark=True)
LIGHT = Palette(dark=False)


_STYLES: dict[approval_text.DiffPart | None, str] = {
    "head": "dim",
    "hunk": "hunk",
    "added": "added",
    "removed": "removed",
    "note": "dim",
}


def paint_diff(diff: str) -> Iterator[Text]:
    return (Text(line, _STYLES.get(part, "")) for line, part in approval_text.classify_lines(diff))


def diff_edit(old: str, new: str) -> list[str]:
    """Returns the lines that an edit removes and adds, with their marks."""
    from difflib import ndiff

    old_lines, new_lines = old.split("\n"), new.split("\n")
    if len(old_lines) * len(new_lines) > 40_000:  # comparing would take longer than reading
        return [f"- {line}" for line in old_lines] + [f"+ {line}" for line in new_lines]
    return [line for line in ndiff(old_lines, new_lines) if not line.startswith("? ")]


def paint_marked_lines(rows: list[str]) -> Iterator[Text]:
    """Paints lines that start with a `+` or `-` mark."""
    for row in rows:
        yield Text(row, {"+": "added", "-": "removed"}.get(row[:1], ""))
