"""Each block of a transcript as lines: what was said, thought, done, asked, and how it ended.

Folded, a card shows what it is and how it went; unfolded, all of it, up to a bound that it tells.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.text import Text

from switchtower.tui.paint import diffs, tools
from switchtower.tui.paint.palette import Palette
from switchtower.tui.paint.prose import Line, Prose
from switchtower.tui.state import amounts, blocks, harmless
from switchtower.tui.state.facts import Facts

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


class Look(NamedTuple):
    """How things are to be painted now. `beat` moves what is under way."""

    width: int
    palette: Palette
    facts: Facts
    unfolded: bool = False
    beat: int = 0


class Painter:
    def __init__(self) -> None:
        self._prose = Prose()

    def lines(self, block: blocks.Block, look: Look) -> list[Line]:
        match block:
            case blocks.Streamed(void=True):
                return []
            case blocks.Answer():
                return self._answer(block, look)
            case blocks.Thought():
                return wrapped(_thought(block, look), look)
            case blocks.Tool():
                return wrapped(_tool(block, look), look)
            case blocks.Said():
                return wrapped(_said(block), look)
            case blocks.Asked():
                return wrapped(_asked(block, look), look)
            case blocks.Notice():
                return wrapped(_notice(block), look)
            case blocks.Ended():
                return wrapped(_ended(block, look), look)
        return []

    def _answer(self, block: blocks.Answer, look: Look) -> list[Line]:
        lines = self._prose.lines(block.text, look.width - 2, look.palette)
        if block.dropped:
            note = Text(f"[… {block.dropped:,} characters before this]", "dim")
            lines = [*wrapped([note], look), *lines]
        return lines if not lines else [*lines, []]


def is_foldable(block: blocks.Block) -> bool:
    return isinstance(block, blocks.Thought | blocks.Tool | blocks.Asked)


def is_moving(block: blocks.Block) -> bool:
    return isinstance(block, blocks.Tool) and block.is_open


def wrapped(texts: Iterable[Text], look: Look) -> list[Line]:
    """Each text on lines of its own, broken anywhere rather than cut: nothing is hidden behind the edge."""
    console = look.palette.console
    options = console.options.update(width=max(10, look.width), overflow="fold", no_wrap=False)
    lines: list[Line] = []
    for text in texts:
        text.end = ""
        lines += console.render_lines(text, options, pad=False) if text.plain else [[]]
    return lines


def _said(block: blocks.Said) -> Iterator[Text]:
    label = Text.assemble(("▌ ", "you"), ("you", "you"), (f"  {block.how}" if block.how else "", "dim"))
    yield label
    for row in harmless.prose(block.text).split("\n"):
        yield Text.assemble(("▌ ", "you"), (row, "you.text"))
    yield Text("")


def _thought(block: blocks.Thought, look: Look) -> Iterator[Text]:
    words = len(block.text.split())
    sign = "▾" if look.unfolded else "▸"
    verb = "thought" if block.done else "thinking"
    yield Text.assemble((f"{sign} {verb}", "thought"), (f"  {amounts.counted(words, 'word')}", "faint"))
    if look.unfolded:
        for row in harmless.prose(block.text).strip().split("\n"):
            yield Text(f"  {row}", "thought")
    yield Text("")


def _tool(block: blocks.Tool, look: Look) -> Iterator[Text]:
    yield _tool_header(block, look)
    body = list(tools.body(block, unfolded=look.unfolded))
    most = UNFOLDED_LINES if look.unfolded else FOLDED_LINES
    hidden = len(body) - most
    if hidden > 0:
        # A program's end matters most, of a change its beginning.
        keep_end = tools.ends_matter(block)
        note = Text(
            f"  │ … {amounts.counted(hidden, 'more line')}" + ("" if look.unfolded else ", Enter or click unfolds"), "faint"
        )
        body = [note, *body[-most:]] if keep_end else [*body[:most], note]
    yield from body
    yield Text("")


def _tool_header(block: blocks.Tool, look: Look) -> Text:
    if block.is_open:
        sign, style = SPINNER[look.beat % len(SPINNER)], "accent"
    elif block.is_error:
        sign, style = "✗", "bad"
    elif block.result is None:
        sign, style = "◌", "warn"
    else:
        sign, style = "✓", "good"
    header = Text.assemble(("▾" if look.unfolded else "▸", "faint"), " ", (sign, style), " ", tools.headline(block))
    if block.is_error and len(block.problem) <= tools.LONGEST_PROBLEM:
        header.append(f"  {harmless.line(block.problem)}" if block.problem else "", "bad")
    facts = [amounts.duration(block.duration_ms)] if block.result is not None else []
    if (size := tools.size(block)) and not look.unfolded:
        facts.append(size)
    if facts:
        header.append(f"  {' · '.join(facts)}", "faint")
    return header


def _asked(block: blocks.Asked, look: Look) -> Iterator[Text]:
    from switchtower.tui.state import decisions

    approval = block.approval
    decided = look.facts.decided(approval.approvalId)
    style = "warn" if decided is None else "good" if decided.startswith("approved") else "bad"
    title = harmless.exact_line(approval.title if decided is not None else f"{approval.title}: {approval.summary}")
    yield Text.assemble(
        ("◆ ", style), (title, "" if decided is None else "dim"), (f"  {decided or 'needs approval: Ctrl-T'}", style)
    )
    if look.unfolded:
        for part in decisions.parts(approval):
            if part.kind == "diff":
                yield from (Text("  │ ").append_text(line) for line in diffs.lines(part.text))
            else:
                for row in part.text.split("\n"):
                    yield Text.assemble((f"  │ {part.name}: ", "dim"), row)
    yield Text("")


def _notice(block: blocks.Notice) -> Iterator[Text]:
    sign, style = _LEVELS.get(block.level, _LEVELS["info"])
    detail = f" ({harmless.line(block.detail)[:500]})" if block.detail else ""
    yield Text(f"{sign} {harmless.line(block.text)}{detail}", style)
    if block.remedy:
        yield Text.assemble(("  hint: ", "accent"), (block.remedy, ""))
    if block.level != "info":
        yield Text("")


def _ended(block: blocks.Ended, look: Look) -> Iterator[Text]:
    for result in block.results:
        verdict, style = ("accepted", "good") if result.passed else (f"not accepted, exit code {result.exitCode}", "bad")
        yield Text.assemble((f"{'✓' if result.passed else '✗'} {harmless.line(result.id)}  ", style), (verdict, style))
        if not result.passed and result.output.strip():
            for row in harmless.program(result.output).strip().split("\n")[-3:]:
                yield Text(f"  │ {row}", "output")
    sign, style, word = _OUTCOMES.get(block.outcome, ("·", "dim", block.outcome))
    line = Text(f"{sign} {word}", style)
    if (run := look.facts.runs.get(block.run_id or "")) is not None:
        if run.started_ms is not None and run.ended_ms is not None:
            line.append(f" in {amounts.duration(run.ended_ms - run.started_ms)}", "faint")
        if run.tokens_in or run.tokens_out:
            line.append(f" · {run.tokens_in:,} tokens in, {run.tokens_out:,} out", "faint")
            if run.cost:
                line.append(f" · {'' if run.priced else 'at least '}{amounts.dollars(run.cost)}", "faint")
    yield line
    if block.outcome != "success" and block.summary.strip():
        yield Text(f"  {harmless.line(block.summary)[:500]}", "dim")
    yield Text("")


def plain(lines: list[Line]) -> str:
    """What the lines say, to copy and to compare."""
    return "\n".join("".join(segment.text for segment in line if not segment.control).rstrip() for line in lines)
