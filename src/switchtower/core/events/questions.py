"""Approvals and dialogs, and their results."""

from typing import Any, ClassVar

from switchtower.core.events.enums import Verdict
from switchtower.core.events.values import Actor, Approval, Dialog, Event, Rule


class DialogOpened(Event, frozen=True):
    kind: ClassVar[str] = "dialog.opened"
    dialog: Dialog


class DialogAnswered(Event, frozen=True):
    """`response` has `value`, `confirmed` or `responses`, as the method requires."""

    kind: ClassVar[str] = "dialog.answered"
    dialog_id: str
    response: dict[str, Any]
    by: Actor


class DialogClosed(Event, frozen=True):
    """The dialog ended without an answer: it was dismissed, it expired, or the run that opened it has ended."""

    kind: ClassVar[str] = "dialog.closed"
    dialog_id: str
    reason: str


class ApprovalRequested(Event, frozen=True):
    kind: ClassVar[str] = "approval.requested"
    approval: Approval


class ApprovalDecided(Event, frozen=True):
    kind: ClassVar[str] = "approval.decided"
    approval_id: str
    verdict: Verdict
    by: Actor
    comment: str | None = None
    rule: Rule | None = None
    """The rule that this decision made, for the rest of the session."""


class ApprovalExpired(Event, frozen=True):
    """No user decided in time. This is not a denial."""

    kind: ClassVar[str] = "approval.expired"
    approval_id: str


class ApprovalWithdrawn(Event, frozen=True):
    """The run that requested it has ended, so there is nothing left to decide."""

    kind: ClassVar[str] = "approval.withdrawn"
    approval_id: str
    reason: str
