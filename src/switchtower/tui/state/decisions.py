"""An approval for the person who decides: what will run, exactly, and what each key means. Pure."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from switchtower.protocols.push import messages
from switchtower.tui.state import harmless
from switchtower.tui.state.amounts import clock

NO = "The person at the terminal said no"
"""The comment of a denial after which the run goes on. Push ends a run that is denied without one."""
_MAIN = ("command", "diff", "content", "path", "message")
"""What a decision is about in the first place, in this order."""
_HIDDEN = frozenset({"destructive", "always"})


class Decision(NamedTuple):
    decision: messages.ApprovalDecision
    comment: str | None = None
    scope: messages.ApprovalScope = "once"
    stop: bool | None = None


YES = Decision("approve")
ALWAYS = Decision("approve", scope="session")
DENY_AND_STOP = Decision("deny", stop=True)


def no(why: str = "") -> Decision:
    return Decision("deny", comment=why.strip() or NO)


class Part(NamedTuple):
    """One thing that the approval shows. `kind` is `command`, `diff`, `text` or `value`."""

    name: str
    kind: str
    text: str


def parts(approval: messages.ApprovalRequired) -> Iterator[Part]:
    """All of its details, the important ones first. Nothing is left out: whoever decides must see all of what will run."""
    details = approval.details
    names = [name for name in _MAIN if name in details] + [name for name in details if name not in _MAIN]
    for name in names:
        if name not in _HIDDEN:
            yield _part(name, details[name])


def _part(name: str, value: Any) -> Part:
    shown = harmless.exact(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
    if name == "diff" and isinstance(value, str):
        return Part(name, "diff", shown)
    if name == "command" and isinstance(value, str):
        return Part(name, "command", shown)
    return Part(name, "text" if "\n" in shown else "value", shown)


def is_destructive(approval: messages.ApprovalRequired) -> bool:
    return approval.details.get("destructive") is True


def always_rule(approval: messages.ApprovalRequired) -> str | None:
    """The rule that "always for this session" would make; None where each time is asked anew."""
    rule = approval.details.get("always")
    if rule is None or rule is False:
        return None
    return harmless.exact(rule if isinstance(rule, str) else json.dumps(rule, ensure_ascii=False, default=str))


def countdown(seconds: float) -> str:
    """How long it can still be decided."""
    if seconds >= 48 * 3_600:
        return f"{int(seconds // 86_400)} days left"
    return f"{clock(seconds)} left" if seconds > 0 else "expired"
