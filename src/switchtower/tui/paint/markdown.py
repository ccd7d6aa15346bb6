"""Paints Markdown as lines. A growing text is painted in chunks, so that only its last chunk is painted again.

The text is untrusted: links are shown with their addresses, and nothing in the text is interpreted as Rich markup.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

from switchtower.presentation import safe_text
from switchtower.tui.paint.palette import Palette

Line = list[Segment]

_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_CONTINUES = re.compile(r"\s|[-*+>] |\d{1,9}[.)] |\[[^\]]+\]:")
"""A line after a blank one that still belongs to the part before: a list item, an indented block or a quote."""
_CACHED = 400
LONGEST_PIECE = 4_000


class _Heading(Heading):
    """A heading that is left-aligned and has no box, because a transcript is read from top to bottom."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.overflow = "fold"
        yield self.text


class _CodeBlock(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Syntax(
            str(self.text).rstrip(), self.lexer_name, theme=self.theme, word_wrap=True, padding=(0, 1), background_color="default"
        )


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
    }


class MarkdownPainter:
    """Paints Markdown and caches the painted chunks."""

    def __init__(self) -> None:
        self._painted: OrderedDict[tuple[str, int, bool], list[Line]] = OrderedDict()

    def paint_markdown(self, text: str, width: int, palette: Palette) -> list[Line]:
        lines: list[Line] = []
        for chunk in split_chunks(safe_text.escape_prose(text)):
            if lines:
                lines.append([])
            for piece in split_long_line(chunk):
                lines += self._paint_cached(piece, width, palette)
        return lines

    def _paint_cached(self, chunk: str, width: int, palette: Palette) -> list[Line]:
        key = (chunk, width, palette.dark)
        if (found := self._painted.get(key)) is not None:
            self._painted.move_to_end(key)
            return found
        self._painted[key] = painted = _paint(chunk, width, palette)
        if len(self._painted) > _CACHED:
            self._painted.popitem(last=False)
        return painted


def _paint(chunk: str, width: int, palette: Palette) -> list[Line]:
    options = palette.console.options.update(width=max(10, width))
    try:
        markdown = _Markdown(chunk, code_theme=palette.code_theme, hyperlinks=False)
        lines = palette.console.render_lines(markdown, options, pad=False)
    except Exception:
        # The user still needs to read a text that the parser fails on.
        lines = palette.console.render_lines(Text(chunk), options, pad=False)
    while lines and not any(segment.text.strip() for segment in lines[-1]):
        lines.pop()
    while lines and not any(segment.text.strip() for segment in lines[0]):
        lines.pop(0)
    return lines


def split_long_line(chunk: str, longest: int = LONGEST_PIECE) -> Iterator[str]:
    """Splits a very long line into pieces too, so that while it grows only its last piece is painted again."""
    while len(chunk) > longest and "\n" not in chunk.strip("\n"):
        cut = chunk.rfind(" ", 0, longest)
        cut = cut if cut > 0 else longest
        yield chunk[:cut]
        chunk = chunk[cut:].lstrip(" ")
    yield chunk


def split_chunks(text: str) -> Iterator[str]:
    """Splits Markdown into chunks that can be painted one by one: at blank lines outside of fences and of blocks that
    continue."""
    taken: list[str] = []
    fence = ""
    after_blank = False
    for line in text.split("\n"):
        if fence:
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        else:
            if after_blank and line.strip() and not _CONTINUES.match(line) and any(part.strip() for part in taken):
                yield "\n".join(taken)
                taken = []
            if found := _FENCE.match(line):
                fence = found[1]
        after_blank = not line.strip() and not fence
        taken.append(line)
    if any(part.strip() for part in taken):
        yield "\n".join(taken)
