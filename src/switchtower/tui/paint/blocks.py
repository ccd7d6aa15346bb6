"""Paints each block of a transcript as lines.

A folded tool card shows its headline and its result; an unfolded one shows everything, up to a limit that it states.

Paints Markdown as lines. A growing text is painted in chunks, so that only its last chunk is painted again.

The text is untrusted: links are shown with their addresses, and nothing in the text is interpreted as Rich markup."""

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

from switchtower.presentation import formats, safe_text, transcript
from switchtower.presentation.session_details import RunFacts
from switchtower.tui.paint import palette as paint_palette
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


COMMAND = "sandbox_exec"
_VERBS = {
    "sandbox_read_file": ("Read", "path"),
    "sandbox_write_file": ("Write", "path"),
    "sandbox_edit_file": ("Edit", "path"),
    "sandbox_list_dir": ("List", "path"),
    "sandbox_search": ("Search", "pattern"),
    "sandbox_commit": ("Commit", "message"),
    "sandbox_diff": ("Git diff", ""),
    "sandbox_status": ("Git status", ""),
    "ask_user": ("Ask", "question"),
}
_WRITE_TOOLS = frozenset({"sandbox_write_file", "sandbox_edit_file"})
_QUIET_TOOLS = frozenset({"sandbox_read_file", "sandbox_list_dir", "sandbox_search", "ask_user"})
"""Tools whose results are for the model; a folded card shows only their size."""
_LONGEST_VALUE = 200
LONGEST_PROBLEM = 60
"""The maximum number of characters of an error shown next to the call; a longer one is shown below."""


def paint_headline(block: transcript.ToolBlock) -> Text:
    args = block.args or {}
    if block.name == COMMAND:
        return Text.assemble(
            ("$ ", "accent"), (safe_text.to_safe_line(_format_value(args.get("command"))) or "a command", "name")
        )
    verb, about = _VERBS.get(block.name, ("", ""))
    if verb:
        subject = safe_text.to_safe_line(_format_value(args.get(about))) if about else ""
        return Text.assemble((verb, "name"), f" {subject}" if subject else "")
    rest = "  ".join(f"{safe_text.to_safe_line(name)}={_shorten_value(value)}" for name, value in args.items())
    return Text.assemble((safe_text.to_safe_line(block.name) or "a tool", "name"), (f"  {rest}" if rest else "", "dim"))


def format_output_size(block: transcript.ToolBlock) -> str:
    if block.result is None or block.name in _WRITE_TOOLS:
        return ""
    return formats.format_count(len(block.result.splitlines()), "line")


def is_end_important(block: transcript.ToolBlock) -> bool:
    return block.name not in _WRITE_TOOLS


def paint_body(block: transcript.ToolBlock, *, unfolded: bool) -> Iterator[Text]:
    if unfolded:
        yield from _paint_arguments(block)
    if block.name in _WRITE_TOOLS and block.args:
        yield from (_indent(line) for line in _paint_change(block))
    if block.is_error:
        if len(block.problem) > LONGEST_PROBLEM or not block.problem:
            yield from (_indent(Text(row, "bad")) for row in _split_rows(block.problem or block.result or "it failed"))
        if block.problem and block.result and block.result.strip() != block.problem.strip():
            yield from (_indent(Text(row, "output")) for row in _split_rows(block.result))
        return
    if block.name in _WRITE_TOOLS or (block.name in _QUIET_TOOLS and not unfolded):
        return
    yield from (_indent(Text(row, "output")) for row in _split_rows(block.text if block.result is None else block.result))


def _paint_change(block: transcript.ToolBlock) -> Iterator[Text]:
    args = block.args or {}
    if block.name == "sandbox_edit_file":
        rows = paint_palette.diff_edit(_format_value(args.get("old")), _format_value(args.get("new")))
    else:
        rows = [f"+ {row}" for row in _format_value(args.get("content")).removesuffix("\n").split("\n")]
    yield from paint_palette.paint_marked_lines([safe_text.escape_prose(row) for row in rows])


def _paint_arguments(block: transcript.ToolBlock) -> Iterator[Text]:
    for name, value in (block.args or {}).items():
        if block.name in _WRITE_TOOLS and name in ("content", "old", "new"):
            continue
        rows = safe_text.escape_exact(_format_value(value)).split("\n")
        yield Text.assemble(("  │ ", "faint"), (f"{safe_text.to_safe_line(name)}: ", "dim"), rows[0])
        yield from (_indent(Text(row)) for row in rows[1:])


def _split_rows(text: str) -> list[str]:
    shown = safe_text.clean_program_output(text).strip("\n")
    return shown.split("\n") if shown.strip() else []


def _indent(text: Text) -> Text:
    return Text("  │ ", "faint").append_text(text)


def _shorten_value(value: Any) -> str:
    text = safe_text.to_safe_line(_format_value(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _format_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False, default=str)


FOLDED_LINES = 6
UNFOLDED_LINES = 2_000
_OUTCOMES = {
    "success": ("✓", "good", "done"),
    "failed": ("✗", "bad", "failed"),
    "cancelled": ("◌", "warn", "cancelled"),
    "denied": ("✗", "bad", "denied"),
}
_LEVELS = {"info": ("·", "dim"), "warning": ("!", "warn"), "error": ("✗", "bad")}
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class PaintOptions(NamedTuple):
    """The current width, colours and state to paint with. `beat` advances the animation of active blocks."""

    width: int
    palette: Palette
    facts: RunFacts
    unfolded: bool = False
    beat: int = 0


class BlockPainter:
    def __init__(self) -> None:
        self._markdown = MarkdownPainter()

    def paint_block(self, block: transcript.TranscriptBlock, options: PaintOptions) -> list[Line]:
        match block:
            case transcript.TextStreamBlock(void=True):
                return []
            case transcript.AnswerBlock():
                return self._paint_answer(block, options)
            case transcript.ThinkingBlock():
                return wrap_lines(_paint_thinking(block, options), options)
            case transcript.ToolBlock():
                return wrap_lines(_paint_tool(block, options), options)
            case transcript.UserMessageBlock():
                return wrap_lines(_paint_user_message(block), options)
            case transcript.ApprovalBlock():
                return wrap_lines(_paint_approval(block, options), options)
            case transcript.NoticeBlock():
                return wrap_lines(_paint_notice(block), options)
            case transcript.RunEndBlock():
                return wrap_lines(_paint_run_end(block, options), options)
        return []

    def _paint_answer(self, block: transcript.AnswerBlock, look: PaintOptions) -> list[Line]:
        lines = self._markdown.paint_markdown(block.text, look.width - 2, look.palette)
        if block.dropped:
            note = Text(f"[… {block.dropped:,} characters before this]", "dim")
            lines = [*wrap_lines([note], look), *lines]
        return lines if not lines else [*lines, []]


def is_foldable(block: transcript.TranscriptBlock) -> bool:
    return isinstance(block, transcript.ThinkingBlock | transcript.ToolBlock | transcript.ApprovalBlock)


def is_animated(block: transcript.TranscriptBlock) -> bool:
    return isinstance(block, transcript.ToolBlock) and block.is_open


def wrap_lines(texts: Iterable[Text], look: PaintOptions) -> list[Line]:
    """Wraps each text onto separate lines. Long words are broken rather than cut, so that nothing is hidden beyond the edge."""
    console = look.palette.console
    options = console.options.update(width=max(10, look.width), overflow="fold", no_wrap=False)
    lines: list[Line] = []
    for text in texts:
        text.end = ""
        lines += console.render_lines(text, options, pad=False) if text.plain else [[]]
    return lines


def _paint_user_message(block: transcript.UserMessageBlock) -> Iterator[Text]:
    label = Text.assemble(("▌ ", "you"), ("you", "you"), (f"  {block.how}" if block.how else "", "dim"))
    yield label
    for row in safe_text.escape_prose(block.text).split("\n"):
        yield Text.assemble(("▌ ", "you"), (row, "you.text"))
    yield Text("")


def _paint_thinking(block: transcript.ThinkingBlock, look: PaintOptions) -> Iterator[Text]:
    words = len(block.text.split())
    sign = "▾" if look.unfolded else "▸"
    verb = "thought" if block.done else "thinking"
    yield Text.assemble((f"{sign} {verb}", "thought"), (f"  {formats.format_count(words, 'word')}", "faint"))
    if look.unfolded:
        for row in safe_text.escape_prose(block.text).strip().split("\n"):
            yield Text(f"  {row}", "thought")
    yield Text("")


def _paint_tool(block: transcript.ToolBlock, look: PaintOptions) -> Iterator[Text]:
    yield _paint_tool_header(block, look)
    body = list(paint_body(block, unfolded=look.unfolded))
    most = UNFOLDED_LINES if look.unfolded else FOLDED_LINES
    hidden = len(body) - most
    if hidden > 0:
        # The end of a program's output matters most; for a change it is the beginning.
        keep_end = is_end_important(block)
        note = Text(
            f"  │ … {formats.format_count(hidden, 'more line')}" + ("" if look.unfolded else ", Enter or click unfolds"), "faint"
        )
        body = [note, *body[-most:]] if keep_end else [*body[:most], note]
    yield from body
    yield Text("")


def _paint_tool_header(block: transcript.ToolBlock, look: PaintOptions) -> Text:
    if block.is_open:
        sign, style = SPINNER[look.beat % len(SPINNER)], "accent"
    elif block.is_error:
        sign, style = "✗", "bad"
    elif block.result is None:
        sign, style = "◌", "warn"
    else:
        sign, style = "✓", "good"
    header = Text.assemble(("▾" if look.unfolded else "▸", "faint"), " ", (sign, style), " ", paint_headline(block))
    if block.is_error and len(block.problem) <= LONGEST_PROBLEM:
        header.append(f"  {safe_text.to_safe_line(block.problem)}" if block.problem else "", "bad")
    facts = [formats.format_duration(block.duration_ms)] if block.result is not None else []
    if (size := format_output_size(block)) and not look.unfolded:
        facts.append(size)
    if facts:
        header.append(f"  {' · '.join(facts)}", "faint")
    return header


def _paint_approval(block: transcript.ApprovalBlock, look: PaintOptions) -> Iterator[Text]:
    from switchtower.presentation import approval_text

    approval = block.approval
    decided = look.facts.get_decision(approval.approvalId)
    style = "warn" if decided is None else "good" if decided.startswith("approved") else "bad"
    title = safe_text.escape_exact_line(approval.title if decided is not None else f"{approval.title}: {approval.summary}")
    yield Text.assemble(
        ("◆ ", style), (title, "" if decided is None else "dim"), (f"  {decided or 'needs approval: Ctrl-T'}", style)
    )
    if look.unfolded:
        for part in approval_text.list_details(approval):
            if part.kind == "diff":
                yield from (Text("  │ ").append_text(line) for line in paint_palette.paint_diff(part.text))
            else:
                for row in part.text.split("\n"):
                    yield Text.assemble((f"  │ {part.name}: ", "dim"), row)
    yield Text("")


def _paint_notice(block: transcript.NoticeBlock) -> Iterator[Text]:
    sign, style = _LEVELS.get(block.level, _LEVELS["info"])
    detail = f" ({safe_text.to_safe_line(block.detail)[:500]})" if block.detail else ""
    yield Text(f"{sign} {safe_text.to_safe_line(block.text)}{detail}", style)
    if block.remedy:
        yield Text.assemble(("  hint: ", "accent"), (block.remedy, ""))
    if block.level != "info":
        yield Text("")


def _paint_run_end(block: transcript.RunEndBlock, look: PaintOptions) -> Iterator[Text]:
    for result in block.results:
        verdict, style = ("accepted", "good") if result.passed else (f"not accepted, exit code {result.exitCode}", "bad")
        yield Text.assemble((f"{'✓' if result.passed else '✗'} {safe_text.to_safe_line(result.id)}  ", style), (verdict, style))
        if not result.passed and result.output.strip():
            for row in safe_text.clean_program_output(result.output).strip().split("\n")[-3:]:
                yield Text(f"  │ {row}", "output")
    sign, style, word = _OUTCOMES.get(block.outcome, ("·", "dim", block.outcome))
    line = Text(f"{sign} {word}", style)
    if (run := look.facts.runs.get(block.run_id or "")) is not None:
        if run.started_ms is not None and run.ended_ms is not None:
            line.append(f" in {formats.format_duration(run.ended_ms - run.started_ms)}", "faint")
        if run.tokens_in or run.tokens_out:
            line.append(f" · {run.tokens_in:,} tokens in, {run.tokens_out:,} out", "faint")
            if run.cost:
                line.append(f" · {'' if run.priced else 'at least '}{formats.format_dollars(run.cost)}", "faint")
    yield line
    if block.outcome != "success" and block.summary.strip():
        yield Text(f"  {safe_text.to_safe_line(block.summary)[:500]}", "dim")
    yield Text("")


def to_plain_text(lines: list[Line]) -> str:
    """Returns the plain text of the lines, for copying and comparing."""
    return "\n".join("".join(segment.text for segment in line if not segment.control).rstrip() for line in lines)
