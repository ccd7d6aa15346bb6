"""Tools in words: what a call is about on one line, and what it shows below."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from switchtower.tui.paint import diffs
from switchtower.tui.state import amounts, blocks, harmless

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
"""Their results are for the model; folded, the size says enough."""
_LONGEST_VALUE = 200
LONGEST_PROBLEM = 60
"""Characters of a problem that has its place behind the call; a longer one stands below."""


def paint_headline(block: blocks.ToolBlock) -> Text:
    args = block.args or {}
    if block.name == COMMAND:
        return Text.assemble(("$ ", "accent"), (harmless.to_safe_line(_format_value(args.get("command"))) or "a command", "name"))
    verb, about = _VERBS.get(block.name, ("", ""))
    if verb:
        subject = harmless.to_safe_line(_format_value(args.get(about))) if about else ""
        return Text.assemble((verb, "name"), f" {subject}" if subject else "")
    rest = "  ".join(f"{harmless.to_safe_line(name)}={_shorten_value(value)}" for name, value in args.items())
    return Text.assemble((harmless.to_safe_line(block.name) or "a tool", "name"), (f"  {rest}" if rest else "", "dim"))


def format_output_size(block: blocks.ToolBlock) -> str:
    if block.result is None or block.name in _WRITE_TOOLS:
        return ""
    return amounts.format_count(len(block.result.splitlines()), "line")


def is_end_important(block: blocks.ToolBlock) -> bool:
    return block.name not in _WRITE_TOOLS


def paint_body(block: blocks.ToolBlock, *, unfolded: bool) -> Iterator[Text]:
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


def _paint_change(block: blocks.ToolBlock) -> Iterator[Text]:
    args = block.args or {}
    if block.name == "sandbox_edit_file":
        rows = diffs.diff_edit(_format_value(args.get("old")), _format_value(args.get("new")))
    else:
        rows = [f"+ {row}" for row in _format_value(args.get("content")).removesuffix("\n").split("\n")]
    yield from diffs.paint_marked_lines([harmless.escape_prose(row) for row in rows])


def _paint_arguments(block: blocks.ToolBlock) -> Iterator[Text]:
    for name, value in (block.args or {}).items():
        if block.name in _WRITE_TOOLS and name in ("content", "old", "new"):
            continue
        rows = harmless.escape_exact(_format_value(value)).split("\n")
        yield Text.assemble(("  │ ", "faint"), (f"{harmless.to_safe_line(name)}: ", "dim"), rows[0])
        yield from (_indent(Text(row)) for row in rows[1:])


def _split_rows(text: str) -> list[str]:
    shown = harmless.clean_program_output(text).strip("\n")
    return shown.split("\n") if shown.strip() else []


def _indent(text: Text) -> Text:
    return Text("  │ ", "faint").append_text(text)


def _shorten_value(value: Any) -> str:
    text = harmless.to_safe_line(_format_value(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _format_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False, default=str)
