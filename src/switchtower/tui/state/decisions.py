"""An approval for the person who decides: what will run, exactly, and what each key means. Pure."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from switchtower.protocols.push import messages
from switchtower.tui.state import harmless
from switchtower.tui.state.amounts import format_clock

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
    shown = harmless.escape_exact(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
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
    return harmless.escape_exact(rule if isinstance(rule, str) else json.dumps(rule, ensure_ascii=False, default=str))


def format_countdown(seconds: float) -> str:
    """How long it can still be decided."""
    if seconds >= 48 * 3_600:
        return f"{int(seconds // 86_400)} days left"
    return f"{format_clock(seconds)} left" if seconds > 0 else "expired"
