"""An approval as lines for the person who decides: all of what will run, exactly, and why it is asked. Pure.

A value of several lines is marked at each of them, so that nothing inside of it can pass for one of ours.

An approval for the person who decides: what will run, exactly, and what each key means. Pure."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from switchtower.presentation import safe_text, unified_diff
from switchtower.presentation.formats import format_clock
from switchtower.protocols.push import messages

ColouredLines = Iterator[tuple[str, str | None]]
"""Each line with its colour."""


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
            yield from ((f"  | {line}", colour) for line, colour in unified_diff.colour_lines(value))
        elif name not in ("destructive", "always"):
            yield from _format_detail(name, value)
    if (rule := format_always_rule(approval)) is not None:
        yield f"  always for this session would be: {rule}", "dim"


def format_always_rule(approval: messages.ApprovalRequired) -> str | None:
    """The rule that "always for this session" would make; None where each time is asked anew."""
    rule: Any = approval.details.get("always")
    if rule is None or rule is False:
        return None
    return format_detail_value(rule)


def format_detail_value(value: object) -> str:
    """On one line, whatever it is."""
    return value if isinstance(value, str) and "\n" not in value else json.dumps(value, ensure_ascii=False)


def _format_detail(name: str, value: object) -> ColouredLines:
    if isinstance(value, str) and "\n" in value.rstrip("\n"):
        yield f"  {name}:", "yellow"
        for line in value.split("\n"):
            yield f"  | {line}", "yellow"
    else:
        yield f"  {name}: {format_detail_value(value)}", "yellow"


DEFAULT_DENIAL = "The person at the terminal said no"
"""The comment of a denial after which the run goes on. Push ends a run that is denied without one."""
_MAIN_DETAILS = ("command", "diff", "content", "path", "message")
"""What a decision is about in the first place, in this order."""
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
    """One thing that the approval shows. `kind` is `command`, `diff`, `text` or `value`."""

    name: str
    kind: str
    text: str


def list_details(approval: messages.ApprovalRequired) -> Iterator[ApprovalDetail]:
    """All of its details, the important ones first. Nothing is left out: whoever decides must see all of what will run."""
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
    """The rule that "always for this session" would make; None where each time is asked anew."""
    rule = approval.details.get("always")
    if rule is None or rule is False:
        return None
    return safe_text.escape_exact(rule if isinstance(rule, str) else json.dumps(rule, ensure_ascii=False, default=str))


def format_countdown(seconds: float) -> str:
    """How long it can still be decided."""
    if seconds >= 48 * 3_600:
        return f"{int(seconds // 86_400)} days left"
    return f"{format_clock(seconds)} left" if seconds > 0 else "expired"
