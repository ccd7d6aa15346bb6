"""What is asked of people, as pi's clients show it: approvals as `confirm`, extensions' dialogs by their method. Pure."""

from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from switchtower.core import events, policy
from switchtower.protocols.pi.view import shapes

_SHOWN_DETAILS = (events.CANNOT_APPROVE, "screen", "command", "cwd", "path", "message", "args", "diff", "reason")
"""What it takes to judge a call, in the order in which a person reads it."""

CLOSED_BY_VERDICT = {
    events.Verdict.APPROVE: "approved",
    events.Verdict.DENY_CONTINUE: "denied",
    events.Verdict.DENY_STOP: "denied",
}


def of(question: events.Approval | events.Dialog, now_ms: int) -> shapes.ExtensionUiRequest:
    return of_approval(question, now_ms) if isinstance(question, events.Approval) else of_dialog(question, now_ms)


def of_approval(approval: events.Approval, now_ms: int) -> shapes.ExtensionUiRequest:
    return shapes.ExtensionUiRequest(
        requestId=approval.id,
        method="confirm",
        title=approval.title,
        message=_message(approval),
        timeout=_left(approval.expires_at_ms, now_ms),
        approval=True,
        always=UNSET if approval.rule is None else policy.shown(approval.rule),
    )


def of_dialog(dialog: events.Dialog, now_ms: int) -> shapes.ExtensionUiRequest:
    # pi-server 18.1: each method has fields of its own. A dialog's words are told with any of them.
    return shapes.ExtensionUiRequest(
        requestId=dialog.id,
        method=dialog.method,
        title=dialog.title,
        message=dialog.message if dialog.method == "confirm" or dialog.message else UNSET,
        options=dialog.options if dialog.method == "select" else UNSET,
        placeholder=_given(dialog.placeholder) if dialog.method == "input" else UNSET,
        prefill=_given(dialog.prefill) if dialog.method == "editor" else UNSET,
        questions=dialog.questions if dialog.method == "interview" else UNSET,
        timeout=_left(dialog.expires_at_ms, now_ms),
    )


def _message(approval: events.Approval) -> str:
    """The summary, and under it, whole, what the summary leaves out. Existing clients show nothing but this text."""
    lines = [approval.summary]
    for name in _SHOWN_DETAILS:
        shown = _shown(approval.details, name)
        if shown and shown != approval.summary:
            lines.append(f"{name}:\n{shown}" if "\n" in shown else f"{name}: {shown}")
    if approval.details.get("destructive") is True:
        lines.append("destructive: yes")
    return "\n".join(lines)


def _shown(details: Mapping[str, object], name: str) -> str:
    value = details.get(name)
    if value is None or value == {}:
        return ""
    return value if isinstance(value, str) else str(value)


def _left(expires_at_ms: int, now_ms: int) -> int:
    return max(0, expires_at_ms - now_ms)


def _given(text: str | None) -> str | UnsetType:
    return UNSET if text is None else text
