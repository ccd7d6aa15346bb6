"""What is asked of people, as pi's clients show it: approvals as `confirm`, extensions' dialogs by their method. Pure."""

from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from switchtower.core import events, policy
from switchtower.protocols.pi.view import shapes

_DETAIL_ORDER = (events.CANNOT_APPROVE, "screen", "command", "cwd", "path", "message", "args", "diff", "reason")
"""What it takes to judge a call, in the order in which a person reads it."""

CLOSED_BY_VERDICT = {
    events.Verdict.APPROVE: "approved",
    events.Verdict.DENY_CONTINUE: "denied",
    events.Verdict.DENY_STOP: "denied",
}


def make_ui_request(question: events.Approval | events.Dialog, now_ms: int) -> shapes.ExtensionUiRequest:
    return (
        make_approval_request(question, now_ms)
        if isinstance(question, events.Approval)
        else make_dialog_request(question, now_ms)
    )


def make_approval_request(approval: events.Approval, now_ms: int) -> shapes.ExtensionUiRequest:
    return shapes.ExtensionUiRequest(
        requestId=approval.id,
        method="confirm",
        title=approval.title,
        message=_describe_approval(approval),
        timeout=_compute_timeout(approval.expires_at_ms, now_ms),
        approval=True,
        always=UNSET if approval.rule is None else policy.format_rule(approval.rule),
    )


def make_dialog_request(dialog: events.Dialog, now_ms: int) -> shapes.ExtensionUiRequest:
    # pi-server 18.1: each method has fields of its own. A dialog's words are told with any of them.
    return shapes.ExtensionUiRequest(
        requestId=dialog.id,
        method=dialog.method,
        title=dialog.title,
        message=dialog.message if dialog.method == "confirm" or dialog.message else UNSET,
        options=dialog.options if dialog.method == "select" else UNSET,
        placeholder=_unset_if_none(dialog.placeholder) if dialog.method == "input" else UNSET,
        prefill=_unset_if_none(dialog.prefill) if dialog.method == "editor" else UNSET,
        questions=dialog.questions if dialog.method == "interview" else UNSET,
        timeout=_compute_timeout(dialog.expires_at_ms, now_ms),
    )


def _describe_approval(approval: events.Approval) -> str:
    """The summary, and under it, whole, what the summary leaves out. Existing clients show nothing but this text."""
    lines = [approval.summary]
    for name in _DETAIL_ORDER:
        shown = _format_details(approval.details, name)
        if shown and shown != approval.summary:
            lines.append(f"{name}:\n{shown}" if "\n" in shown else f"{name}: {shown}")
    if approval.details.get("destructive") is True:
        lines.append("destructive: yes")
    return "\n".join(lines)


def _format_details(details: Mapping[str, object], name: str) -> str:
    value = details.get(name)
    if value is None or value == {}:
        return ""
    return value if isinstance(value, str) else str(value)


def _compute_timeout(expires_at_ms: int, now_ms: int) -> int:
    return max(0, expires_at_ms - now_ms)


def _unset_if_none(text: str | None) -> str | UnsetType:
    return UNSET if text is None else text
