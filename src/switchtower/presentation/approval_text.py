"""Formats an approval for the user who decides: exactly what will run, why it needs approval, and what each key does. Pure.

Every line of a multi-line value is marked, so that no content can imitate a line of the user interface.

Classifies the lines of a unified diff, and names a colour for each class. Pure."""

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from switchtower.presentation import safe_text
from switchtower.presentation.formats import format_clock
from switchtower.protocols.push import messages

DiffPart = Literal["head", "hunk", "added", "removed", "note"]

_HEADER_PREFIXES = (
    "diff ",
    "index ",
    "--- ",
    "+++ ",
    "new file",
    "deleted file",
    "old mode",
    "new mode",
    "rename ",
    "similarity ",
)
_PARTS_BY_PREFIX: dict[str, DiffPart] = {"@": "hunk", "+": "added", "-": "removed", "\\": "note"}


def classify_lines(diff: str) -> Iterator[tuple[str, DiffPart | None]]:
    """Yields each line with its part; None for an unchanged line. Inside a hunk, `--- x` is a removed line `-- x`, not a
    header."""
    in_hunk = False
    for line in diff.removesuffix("\n").split("\n"):
        if line.startswith("@@"):
            in_hunk = True
        elif line.startswith("diff "):
            in_hunk = False
        if not in_hunk and line.startswith(_HEADER_PREFIXES):
            yield line, "head"
        else:
            yield line, _PARTS_BY_PREFIX.get(line[:1]) if in_hunk else None


_DIFF_COLOURS: dict[DiffPart | None, str] = {
    "head": "dim",
    "hunk": "cyan",
    "added": "green",
    "removed": "red",
    "note": "dim",
}


def colour_lines(diff: str) -> Iterator[tuple[str, str | None]]:
    return ((line, _DIFF_COLOURS.get(part)) for line, part in classify_lines(diff))


ColouredLines = Iterator[tuple[str, str | None]]
"""Lines, each with its colour."""


def format_approval(approval: messages.ApprovalRequired) -> ColouredLines:
    yield f"? {approval.title}: {approval.summary}", "yellow"
    details = approval.details
    if details.get("destructive") is True:
        yield "  DESTRUCTIVE: what this removes or overwrites may not come back", "red"
    if "approve" not in approval.options:
        yield "  CANNOT BE APPROVED FROM HERE: decide at the terminal with `tower attach`, or deny it", "red"
    for name, value in details.items():
        if name == "diff" and isinstance(value, str):
            yield "  diff:", "yellow"
            yield from ((f"  | {line}", colour) for line, colour in colour_lines(value))
        elif name not in ("destructive", "always"):
            yield from _format_detail(name, value)
    if (rule := format_always_rule(approval)) is not None:
        yield f"  always for this session would be: {rule}", "dim"


def format_always_rule(approval: messages.ApprovalRequired) -> str | None:
    """Returns the rule that "always for this session" would create; None when every call needs its own approval."""
    rule: Any = approval.details.get("always")
    if rule is None or rule is False:
        return None
    return format_detail_value(rule)


def format_detail_value(value: object) -> str:
    """Formats any value on one line."""
    return value if isinstance(value, str) and "\n" not in value else json.dumps(value, ensure_ascii=False)


def _format_detail(name: str, value: object) -> ColouredLines:
    if isinstance(value, str) and "\n" in value.rstrip("\n"):
        yield f"  {name}:", "yellow"
        for line in value.split("\n"):
            yield f"  | {line}", "yellow"
    else:
        yield f"  {name}: {format_detail_value(value)}", "yellow"


DEFAULT_DENIAL = "The person at the terminal said no"
"""The comment of a denial after which the run continues. push ends a run that is denied without a comment."""
_MAIN_DETAILS = ("command", "diff", "content", "path", "message")
"""The details that matter most to a decision, in this order."""
_HIDDEN_DETAILS = frozenset({"destructive", "always"})


class ApprovalChoice(NamedTuple):
    decision: messages.ApprovalDecision
    comment: str | None = None
    scope: messages.ApprovalScope = "once"
    stop: bool | None = None


APPROVE_ONCE = ApprovalChoice("approve")
APPROVE_FOR_SESSION = ApprovalChoice("approve", scope="session")
DENY_AND_STOP = ApprovalChoice("deny", stop=True)


def make_denial(why: str = "") -> ApprovalChoice:
    return ApprovalChoice("deny", comment=why.strip() or DEFAULT_DENIAL)


class ApprovalDetail(NamedTuple):
    """One detail of an approval. `kind` is `command`, `diff`, `text` or `value`."""

    name: str
    kind: str
    text: str


def list_details(approval: messages.ApprovalRequired) -> Iterator[ApprovalDetail]:
    """Yields all details, the important ones first. It leaves nothing out: the approver must see everything that will run."""
    details = approval.details
    names = [name for name in _MAIN_DETAILS if name in details] + [name for name in details if name not in _MAIN_DETAILS]
    for name in names:
        if name not in _HIDDEN_DETAILS:
            yield _make_detail(name, details[name])


def _make_detail(name: str, value: Any) -> ApprovalDetail:
    shown = safe_text.escape_exact(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
    if name == "diff" and isinstance(value, str):
        return ApprovalDetail(name, "diff", shown)
    if name == "command" and isinstance(value, str):
        return ApprovalDetail(name, "command", shown)
    return ApprovalDetail(name, "text" if "\n" in shown else "value", shown)


def is_destructive(approval: messages.ApprovalRequired) -> bool:
    return approval.details.get("destructive") is True


def format_safe_always_rule(approval: messages.ApprovalRequired) -> str | None:
    """Like `format_always_rule`, but with every invisible character escaped."""
    rule = approval.details.get("always")
    if rule is None or rule is False:
        return None
    return safe_text.escape_exact(rule if isinstance(rule, str) else json.dumps(rule, ensure_ascii=False, default=str))


def format_countdown(seconds: float) -> str:
    """Formats the time left to decide."""
    if seconds >= 48 * 3_600:
        return f"{int(seconds // 86_400)} days left"
    return f"{format_clock(seconds)} left" if seconds > 0 else "expired"
