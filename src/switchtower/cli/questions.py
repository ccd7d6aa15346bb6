"""An approval as lines for the person who decides: all of what will run, exactly, and why it is asked. Pure.

A value of several lines is marked at each of them, so that nothing inside of it can pass for one of ours.
"""

import json
from collections.abc import Iterator
from typing import Any

from switchtower.cli import diffs
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
            yield from ((f"  | {line}", colour) for line, colour in diffs.colour_lines(value))
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
