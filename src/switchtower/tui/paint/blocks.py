"""Paints each block of a transcript as lines.

A folded tool card shows its headline and its result; an unfolded one shows everything, up to a limit that it states.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from rich.text import Text

from switchtower.presentation import formats, safe_text, transcript_blocks
from switchtower.presentation.run_facts import RunFacts
from switchtower.tui.paint import palette
from switchtower.tui.paint.markdown import Line, MarkdownPainter
from switchtower.tui.paint.palette import Palette

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


def paint_headline(block: transcript_blocks.ToolBlock) -> Text:
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


def format_output_size(block: transcript_blocks.ToolBlock) -> str:
    if block.result is None or block.name in _WRITE_TOOLS:
        return ""
    return formats.format_count(len(block.result.splitlines()), "line")


def is_end_important(block: transcript_blocks.ToolBlock) -> bool:
    return block.name not in _WRITE_TOOLS


def paint_body(block: transcript_blocks.ToolBlock, *, unfolded: bool) -> Iterator[Text]:
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


def _paint_change(block: transcript_blocks.ToolBlock) -> Iterator[Text]:
    args = block.args or {}
    if block.name == "sandbox_edit_file":
        rows = palette.diff_edit(_format_value(args.get("old")), _format_value(args.get("new")))
    else:
        rows = [f"+ {row}" for row in _format_value(args.get("content")).removesuffix("\n").split("\n")]
    yield from palette.paint_marked_lines([safe_text.escape_prose(row) for row in rows])


def _paint_arguments(block: transcript_blocks.ToolBlock) -> Iterator[Text]:
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

    def paint_block(self, block: transcript_blocks.TranscriptBlock, options: PaintOptions) -> list[Line]:
        match block:
            case transcript_blocks.TextStreamBlock(void=True):
                return []
            case transcript_blocks.AnswerBlock():
                return self._paint_answer(block, options)
            case transcript_blocks.ThinkingBlock():
                return wrap_lines(_paint_thinking(block, options), options)
            case transcript_blocks.ToolBlock():
                return wrap_lines(_paint_tool(block, options), options)
            case transcript_blocks.UserMessageBlock():
                return wrap_lines(_paint_user_message(block), options)
            case transcript_blocks.ApprovalBlock():
                return wrap_lines(_paint_approval(block, options), options)
            case transcript_blocks.NoticeBlock():
                return wrap_lines(_paint_notice(block), options)
            case transcript_blocks.RunEndBlock():
                return wrap_lines(_paint_run_end(block, options), options)
        return []

    def _paint_answer(self, block: transcript_blocks.AnswerBlock, look: PaintOptions) -> list[Line]:
        lines = self._markdown.paint_markdown(block.text, look.width - 2, look.palette)
        if block.dropped:
            note = Text(f"[… {block.dropped:,} characters before this]", "dim")
            lines = [*wrap_lines([note], look), *lines]
        return lines if not lines else [*lines, []]


def is_foldable(block: transcript_blocks.TranscriptBlock) -> bool:
    return isinstance(block, transcript_blocks.ThinkingBlock | transcript_blocks.ToolBlock | transcript_blocks.ApprovalBlock)


def is_animated(block: transcript_blocks.TranscriptBlock) -> bool:
    return isinstance(block, transcript_blocks.ToolBlock) and block.is_open


def wrap_lines(texts: Iterable[Text], look: PaintOptions) -> list[Line]:
    """Wraps each text onto separate lines. Long words are broken rather than cut, so that nothing is hidden beyond the edge."""
    console = look.palette.console
    options = console.options.update(width=max(10, look.width), overflow="fold", no_wrap=False)
    lines: list[Line] = []
    for text in texts:
        text.end = ""
        lines += console.render_lines(text, options, pad=False) if text.plain else [[]]
    return lines


def _paint_user_message(block: transcript_blocks.UserMessageBlock) -> Iterator[Text]:
    label = Text.assemble(("▌ ", "you"), ("you", "you"), (f"  {block.how}" if block.how else "", "dim"))
    yield label
    for row in safe_text.escape_prose(block.text).split("\n"):
        yield Text.assemble(("▌ ", "you"), (row, "you.text"))
    yield Text("")


def _paint_thinking(block: transcript_blocks.ThinkingBlock, look: PaintOptions) -> Iterator[Text]:
    words = len(block.text.split())
    sign = "▾" if look.unfolded else "▸"
    verb = "thought" if block.done else "thinking"
    yield Text.assemble((f"{sign} {verb}", "thought"), (f"  {formats.format_count(words, 'word')}", "faint"))
    if look.unfolded:
        for row in safe_text.escape_prose(block.text).strip().split("\n"):
            yield Text(f"  {row}", "thought")
    yield Text("")


def _paint_tool(block: transcript_blocks.ToolBlock, look: PaintOptions) -> Iterator[Text]:
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


def _paint_tool_header(block: transcript_blocks.ToolBlock, look: PaintOptions) -> Text:
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


def _paint_approval(block: transcript_blocks.ApprovalBlock, look: PaintOptions) -> Iterator[Text]:
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
                yield from (Text("  │ ").append_text(line) for line in palette.paint_diff(part.text))
            else:
                for row in part.text.split("\n"):
                    yield Text.assemble((f"  │ {part.name}: ", "dim"), row)
    yield Text("")


def _paint_notice(block: transcript_blocks.NoticeBlock) -> Iterator[Text]:
    sign, style = _LEVELS.get(block.level, _LEVELS["info"])
    detail = f" ({safe_text.to_safe_line(block.detail)[:500]})" if block.detail else ""
    yield Text(f"{sign} {safe_text.to_safe_line(block.text)}{detail}", style)
    if block.remedy:
        yield Text.assemble(("  hint: ", "accent"), (block.remedy, ""))
    if block.level != "info":
        yield Text("")


def _paint_run_end(block: transcript_blocks.RunEndBlock, look: PaintOptions) -> Iterator[Text]:
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
