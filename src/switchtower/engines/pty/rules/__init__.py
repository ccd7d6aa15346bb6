"""Rules that recognise a program that waits for a user. Rules are data: one TOML file for each tool, and the user's own files,
which take precedence.

A rule of kind `line` matches the text before the cursor; a rule of kind `dialog` matches a question with options near the bottom
of the screen, wherever the cursor is. This package reads and checks rules; `prompts` applies them.
"""

import re
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

Reason = Literal["permission", "choice", "prompt", "unknown"]

GENERIC = "generic"
"""The rules for every tool, tried after its own."""

FILE_LIMIT = 256 * 1024


class InvalidPromptRules(Exception):
    """A rules file cannot be used; the message names the file and the rule."""


class PromptRule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    reason: Reason
    match: str
    """`line`: matches the end of the text before the cursor. `dialog`: matches the row with the question."""
    kind: Literal["line", "dialog"] = "line"
    tool: str = ""
    """In a user's file: the tool that the rule is for; every tool when it is empty."""
    approve: str | None = None
    deny: str | None = None
    unless: str | None = None
    """`line`: the rule does not apply when this matches the text. `dialog`: when this matches a row from the question down."""
    below: bool = True
    """`line`: the rule also applies when the cursor is at the start of the next row, as after `echo "Continue?"; read`."""
    key: bool = False
    """`line`: the program takes the answer as a single key. Enter follows only where the terminal is in canonical mode."""
    options: str | None = None
    """Matches an option; its group `label`, or the whole match, is the option. A rule with it requires at least `least` options.
    `line`: the options are above the text, or in it.
    """
    adjacent: bool = False
    """`line`: no blank row may separate the options from the text."""
    least: int = 2
    needs: str | None = None
    """`dialog`: a row from the first option down must match this."""
    footer: str | None = None
    """`dialog`: a row below the options must match this, boxes included; when the options share one row, that row may match it
    too.
    """
    marked: bool = False
    """`dialog`: one of the options must be marked; a numbered list without a mark is only a list."""
    trailing: int = 1
    """`dialog`: the number of rows (hints, a status line) that may follow the last option. This distinguishes a dialog that
    replaces the user's input line from a text that quotes it.
    """
    details: Literal["above", "between", "none"] = "above"
    """`dialog`: the subject is in the box above the question, or between the question and its options."""
    top: str | None = None
    """`dialog`: matches the first row of the subject, boxes included, where no box or full row of lines starts it."""
    selected: str | None = None
    """`dialog`: approving requires that only this option has a separate background colour."""
    cut: str | None = None
    """`dialog`: matches a row which states that the program shows only a part. Approving is then refused."""
    rows: int | None = None
    """`dialog`: in a terminal of 24 rows, the program silently truncates a subject of more rows than this. Approving is
    refused.
    """
    counts: str | None = None
    """`dialog`: in the first row, the groups `added` and `removed` count the lines of the diff that must follow."""
    shows: str | None = None
    """`dialog`: the subject must match this. An incompletely drawn dialog does not match."""
    partial: bool = False
    """The program does not show all of what it will do. Approving is refused."""
    enabled: bool = True


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    rule: list[dict[str, object]] = []
    ignore: list[str] = []
    """Matches text before the cursor that a user is typing: a shell's line, a composer."""


class CompiledPromptRule(Struct, frozen=True):
    rule: PromptRule
    match: re.Pattern[str]
    unless: re.Pattern[str] | None
    options: re.Pattern[str] | None
    needs: re.Pattern[str] | None
    footer: re.Pattern[str] | None = None
    top: re.Pattern[str] | None = None
    cut: re.Pattern[str] | None = None
    counts: re.Pattern[str] | None = None
    shows: re.Pattern[str] | None = None


class PromptRules(Struct, frozen=True):
    by_tool: dict[str, tuple[CompiledPromptRule, ...]]
    ignore: tuple[re.Pattern[str], ...]

    def list_for_tool(self, tool: str) -> tuple[CompiledPromptRule, ...]:
        """Lists the tool's own rules first; a path or a file name serves as the tool's name."""
        name = Path(tool).name.lower().removesuffix(".exe")
        own = self.by_tool.get(name, ()) if name != GENERIC else ()
        return own + self.by_tool.get(GENERIC, ())


def load_rules(extra: Path | None = None) -> PromptRules:
    """Loads the shipped rules and the user's: the user's come first, and one of the same tool and name replaces the shipped
    one.
    """
    by_tool: dict[str, dict[str, CompiledPromptRule]] = {}
    ignore: list[re.Pattern[str]] = []
    for file in sorted(Path(__file__).parent.glob("*.toml")):
        compiled, ignored = _read(file)
        by_tool[file.stem] = {each.rule.name: each for each in compiled}
        ignore += ignored
    if extra is not None:
        compiled, ignored = _read(extra)
        for each in reversed(compiled):
            tool = each.rule.tool.lower() or GENERIC
            shipped = by_tool.setdefault(tool, {})
            shipped.pop(each.rule.name, None)
            by_tool[tool] = {each.rule.name: each, **shipped}
        ignore += ignored
    return PromptRules(
        {tool: tuple(each for each in named.values() if each.rule.enabled) for tool, named in by_tool.items()},
        tuple(ignore),
    )


def _read(file: Path) -> tuple[list[CompiledPromptRule], list[re.Pattern[str]]]:
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_LIMIT + 1)
        if len(content) > FILE_LIMIT:
            raise InvalidPromptRules(f"rules file `{file}`: larger than {FILE_LIMIT} bytes")
        parsed = msgspec.toml.decode(content, type=_File)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise InvalidPromptRules(f"rules file `{file}`: {problem}") from problem
    compiled = [_compile_rule(file, number, fields) for number, fields in enumerate(parsed.rule, start=1)]
    names = [(each.rule.tool.lower(), each.rule.name) for each in compiled]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InvalidPromptRules(f"rules file `{file}`, rule `{name[1]}`: there are two of that name")
    return compiled, [_compile_pattern(file, "ignore", "ignore", text) for text in parsed.ignore]


def _compile_rule(file: Path, number: int, fields: dict[str, object]) -> CompiledPromptRule:
    name = str(fields.get("name") or f"number {number}")
    try:
        rule = msgspec.convert(fields, type=PromptRule)
    except msgspec.ValidationError as problem:
        raise InvalidPromptRules(f"rules file `{file}`, rule `{name}`: {problem}") from problem
    if (rule.approve is None) != (rule.deny is None):
        raise InvalidPromptRules(f"rules file `{file}`, rule `{name}`: `approve` and `deny` go together")
    if rule.kind == "dialog" and rule.options is None:
        raise InvalidPromptRules(f"rules file `{file}`, rule `{name}`: a dialog needs `options`")

    def pattern(field: str, text: str | None) -> re.Pattern[str] | None:
        return None if text is None else _compile_pattern(file, name, field, text)

    # Only the end of the output counts, so a line's pattern is anchored to the end for its author.
    match = _compile_pattern(file, name, "match", rule.match if rule.kind == "dialog" else rf"(?:{rule.match})\s*\Z")
    return CompiledPromptRule(
        rule,
        match,
        pattern("unless", rule.unless),
        pattern("options", rule.options),
        pattern("needs", rule.needs),
        pattern("footer", rule.footer),
        pattern("top", rule.top),
        pattern("cut", rule.cut),
        pattern("counts", rule.counts),
        pattern("shows", rule.shows),
    )


def _compile_pattern(file: Path, name: str, field: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as problem:
        raise InvalidPromptRules(
            f"rules file `{file}`, rule `{name}`: `{field}` is no regular expression: {problem}"
        ) from problem
