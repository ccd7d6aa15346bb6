"""Each block of a transcript as lines: what was said, thought, done, asked, and how it ended.

Folded, a card shows what it is and how it went; unfolded, all of it, up to a bound that it tells.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.text import Text

from switchtower.tui.paint import diffs, tools
from switchtower.tui.paint.palette import Palette
from switchtower.tui.paint.prose import Line, MarkdownPainter
from switchtower.tui.state import amounts, blocks, harmless
from switchtower.tui.state.facts import RunFacts

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
    """How things are to be painted now. `beat` moves what is under way."""

    width: int
    palette: Palette
    facts: RunFacts
    unfolded: bool = False
    beat: int = 0


class BlockPainter:
    def __init__(self) -> None:
        self._markdown = MarkdownPainter()

    def paint_block(self, block: blocks.TranscriptBlock, options: PaintOptions) -> list[Line]:
        match block:
            case blocks.TextStreamBlock(void=True):
                return []
            case blocks.AnswerBlock():
                return self._paint_answer(block, options)
            case blocks.ThinkingBlock():
                return wrap_lines(_paint_thinking(block, options), options)
            case blocks.ToolBlock():
                return wrap_lines(_paint_tool(block, options), options)
            case blocks.UserMessageBlock():
                return wrap_lines(_paint_user_message(block), options)
            case blocks.ApprovalBlock():
                return wrap_lines(_paint_approval(block, options), options)
            case blocks.NoticeBlock():
                return wrap_lines(_paint_notice(block), options)
            case blocks.RunEndBlock():
                return wrap_lines(_paint_run_end(block, options), options)
        return []

    def _paint_answer(self, block: blocks.AnswerBlock, look: PaintOptions) -> list[Line]:
        lines = self._markdown.paint_markdown(block.text, look.width - 2, look.palette)
        if block.dropped:
            note = Text(f"[… {block.dropped:,} characters before this]", "dim")
            lines = [*wrap_lines([note], look), *lines]
        return lines if not lines else [*lines, []]


def is_foldable(block: blocks.TranscriptBlock) -> bool:
    return isinstance(block, blocks.ThinkingBlock | blocks.ToolBlock | blocks.ApprovalBlock)


def is_animated(block: blocks.TranscriptBlock) -> bool:
    return isinstance(block, blocks.ToolBlock) and block.is_open


def wrap_lines(texts: Iterable[Text], look: PaintOptions) -> list[Line]:
    """Each text on lines of its own, broken anywhere rather than cut: nothing is hidden behind the edge."""
    console = look.palette.console
    options = console.options.update(width=max(10, look.width), overflow="fold", no_wrap=False)
    lines: list[Line] = []
    for text in texts:
        text.end = ""
        lines += console.render_lines(text, options, pad=False) if text.plain else [[]]
    return lines


def _paint_user_message(block: blocks.UserMessageBlock) -> Iterator[Text]:
    label = Text.assemble(("▌ ", "you"), ("you", "you"), (f"  {block.how}" if block.how else "", "dim"))
    yield label
    for row in harmless.escape_prose(block.text).split("\n"):
        yield Text.assemble(("▌ ", "you"), (row, "you.text"))
    yield Text("")


def _paint_thinking(block: blocks.ThinkingBlock, look: PaintOptions) -> Iterator[Text]:
    words = len(block.text.split())
    sign = "▾" if look.unfolded else "▸"
    verb = "thought" if block.done else "thinking"
    yield Text.assemble((f"{sign} {verb}", "thought"), (f"  {amounts.format_count(words, 'word')}", "faint"))
    if look.unfolded:
        for row in harmless.escape_prose(block.text).strip().split("\n"):
            yield Text(f"  {row}", "thought")
    yield Text("")


def _paint_tool(block: blocks.ToolBlock, look: PaintOptions) -> Iterator[Text]:
    yield _paint_tool_header(block, look)
    body = list(tools.paint_body(block, unfolded=look.unfolded))
    most = UNFOLDED_LINES if look.unfolded else FOLDED_LINES
    hidden = len(body) - most
    if hidden > 0:
        # A program's end matters most, of a change its beginning.
        keep_end = tools.is_end_important(block)
        note = Text(
            f"  │ … {amounts.format_count(hidden, 'more line')}" + ("" if look.unfolded else ", Enter or click unfolds"), "faint"
        )
        body = [note, *body[-most:]] if keep_end else [*body[:most], note]
    yield from body
    yield Text("")


def _paint_tool_header(block: blocks.ToolBlock, look: PaintOptions) -> Text:
    if block.is_open:
        sign, style = SPINNER[look.beat % len(SPINNER)], "accent"
    elif block.is_error:
        sign, style = "✗", "bad"
    elif block.result is None:
        sign, style = "◌", "warn"
    else:
        sign, style = "✓", "good"
    header = Text.assemble(("▾" if look.unfolded else "▸", "faint"), " ", (sign, style), " ", tools.paint_headline(block))
    if block.is_error and len(block.problem) <= tools.LONGEST_PROBLEM:
        header.append(f"  {harmless.to_safe_line(block.problem)}" if block.problem else "", "bad")
    facts = [amounts.format_duration(block.duration_ms)] if block.result is not None else []
    if (size := tools.format_output_size(block)) and not look.unfolded:
        facts.append(size)
    if facts:
        header.append(f"  {' · '.join(facts)}", "faint")
    return header


def _paint_approval(block: blocks.ApprovalBlock, look: PaintOptions) -> Iterator[Text]:
    from switchtower.tui.state import decisions

    approval = block.approval
    decided = look.facts.get_decision(approval.approvalId)
    style = "warn" if decided is None else "good" if decided.startswith("approved") else "bad"
    title = harmless.escape_exact_line(approval.title if decided is not None else f"{approval.title}: {approval.summary}")
    yield Text.assemble(
        ("◆ ", style), (title, "" if decided is None else "dim"), (f"  {decided or 'needs approval: Ctrl-T'}", style)
    )
    if look.unfolded:
        for part in decisions.list_details(approval):
            if part.kind == "diff":
                yield from (Text("  │ ").append_text(line) for line in diffs.paint_diff(part.text))
            else:
                for row in part.text.split("\n"):
                    yield Text.assemble((f"  │ {part.name}: ", "dim"), row)
    yield Text("")


def _paint_notice(block: blocks.NoticeBlock) -> Iterator[Text]:
    sign, style = _LEVELS.get(block.level, _LEVELS["info"])
    detail = f" ({harmless.to_safe_line(block.detail)[:500]})" if block.detail else ""
    yield Text(f"{sign} {harmless.to_safe_line(block.text)}{detail}", style)
    if block.remedy:
        yield Text.assemble(("  hint: ", "accent"), (block.remedy, ""))
    if block.level != "info":
        yield Text("")


def _paint_run_end(block: blocks.RunEndBlock, look: PaintOptions) -> Iterator[Text]:
    for result in block.results:
        verdict, style = ("accepted", "good") if result.passed else (f"not accepted, exit code {result.exitCode}", "bad")
        yield Text.assemble((f"{'✓' if result.passed else '✗'} {harmless.to_safe_line(result.id)}  ", style), (verdict, style))
        if not result.passed and result.output.strip():
            for row in harmless.clean_program_output(result.output).strip().split("\n")[-3:]:
                yield Text(f"  │ {row}", "output")
    sign, style, word = _OUTCOMES.get(block.outcome, ("·", "dim", block.outcome))
    line = Text(f"{sign} {word}", style)
    if (run := look.facts.runs.get(block.run_id or "")) is not None:
        if run.started_ms is not None and run.ended_ms is not None:
            line.append(f" in {amounts.format_duration(run.ended_ms - run.started_ms)}", "faint")
        if run.tokens_in or run.tokens_out:
            line.append(f" · {run.tokens_in:,} tokens in, {run.tokens_out:,} out", "faint")
            if run.cost:
                line.append(f" · {'' if run.priced else 'at least '}{amounts.format_dollars(run.cost)}", "faint")
    yield line
    if block.outcome != "success" and block.summary.strip():
        yield Text(f"  {harmless.to_safe_line(block.summary)[:500]}", "dim")
    yield Text("")


def to_plain_text(lines: list[Line]) -> str:
    """What the lines say, to copy and to compare."""
    return "\n".join("".join(segment.text for segment in line if not segment.control).rstrip() for line in lines)
