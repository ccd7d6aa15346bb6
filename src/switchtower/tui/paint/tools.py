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
_WRITES = frozenset({"sandbox_write_file", "sandbox_edit_file"})
_QUIET = frozenset({"sandbox_read_file", "sandbox_list_dir", "sandbox_search", "ask_user"})
"""Their results are for the model; folded, the size says enough."""
_LONGEST_VALUE = 200
LONGEST_PROBLEM = 60
"""Characters of a problem that has its place behind the call; a longer one stands below."""


def headline(block: blocks.Tool) -> Text:
    args = block.args or {}
    if block.name == COMMAND:
        return Text.assemble(("$ ", "accent"), (harmless.line(_text(args.get("command"))) or "a command", "name"))
    verb, about = _VERBS.get(block.name, ("", ""))
    if verb:
        subject = harmless.line(_text(args.get(about))) if about else ""
        return Text.assemble((verb, "name"), f" {subject}" if subject else "")
    rest = "  ".join(f"{harmless.line(name)}={_brief(value)}" for name, value in args.items())
    return Text.assemble((harmless.line(block.name) or "a tool", "name"), (f"  {rest}" if rest else "", "dim"))


def size(block: blocks.Tool) -> str:
    if block.result is None or block.name in _WRITES:
        return ""
    return amounts.counted(len(block.result.splitlines()), "line")


def ends_matter(block: blocks.Tool) -> bool:
    return block.name not in _WRITES


def body(block: blocks.Tool, *, unfolded: bool) -> Iterator[Text]:
    if unfolded:
        yield from _arguments(block)
    if block.name in _WRITES and block.args:
        yield from (_inside(line) for line in _change(block))
    if block.is_error:
        if len(block.problem) > LONGEST_PROBLEM or not block.problem:
            yield from (_inside(Text(row, "bad")) for row in _rows(block.problem or block.result or "it failed"))
        if block.problem and block.result and block.result.strip() != block.problem.strip():
            yield from (_inside(Text(row, "output")) for row in _rows(block.result))
        return
    if block.name in _WRITES or (block.name in _QUIET and not unfolded):
        return
    yield from (_inside(Text(row, "output")) for row in _rows(block.text if block.result is None else block.result))


def _change(block: blocks.Tool) -> Iterator[Text]:
    args = block.args or {}
    if block.name == "sandbox_edit_file":
        rows = diffs.of_edit(_text(args.get("old")), _text(args.get("new")))
    else:
        rows = [f"+ {row}" for row in _text(args.get("content")).removesuffix("\n").split("\n")]
    yield from diffs.marked([harmless.prose(row) for row in rows])


def _arguments(block: blocks.Tool) -> Iterator[Text]:
    for name, value in (block.args or {}).items():
        if block.name in _WRITES and name in ("content", "old", "new"):
            continue
        rows = harmless.exact(_text(value)).split("\n")
        yield Text.assemble(("  │ ", "faint"), (f"{harmless.line(name)}: ", "dim"), rows[0])
        yield from (_inside(Text(row)) for row in rows[1:])


def _rows(text: str) -> list[str]:
    shown = harmless.program(text).strip("\n")
    return shown.split("\n") if shown.strip() else []


def _inside(text: Text) -> Text:
    return Text("  │ ", "faint").append_text(text)


def _brief(value: Any) -> str:
    text = harmless.line(_text(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False, default=str)
