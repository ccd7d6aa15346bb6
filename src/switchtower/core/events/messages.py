"""Messages of users and models, and imported ones.

Approvals and dialogs, and their results."""

from typing import Any, ClassVar

from switchtower.core.events.runs import UsageReported
from switchtower.core.events.values import Actor, Approval, Delivery, Dialog, Event, Image, Rule, ToolRequest, Verdict


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


class MessageQueued(Event, frozen=True):
    """A message was queued for the active run, or for the time after it."""

    kind: ClassVar[str] = "message.queued"
    message_id: str
    text: str
    delivery: Delivery
    by: Actor
    images: tuple[Image, ...] = ()


class MessageDelivered(Event, frozen=True):
    """A queued message has become part of the conversation, at this point of it."""

    kind: ClassVar[str] = "message.delivered"
    message_id: str
    text: str
    images: tuple[Image, ...] = ()


class MessageWithdrawn(Event, frozen=True):
    """A queued message will not be delivered: the run it waited for did not succeed."""

    kind: ClassVar[str] = "message.withdrawn"
    message_id: str
    reason: str


class PromptExpanded(Event, frozen=True):
    """The user's last message was expanded before the model read it: a template was filled in, or files were included."""

    kind: ClassVar[str] = "prompt.expanded"
    text: str
    sources: tuple[str, ...] = ()
    """The files that were included."""


class ConversationCleared(Event, frozen=True):
    """The model no longer gets the messages before this point. The journal keeps them."""

    kind: ClassVar[str] = "conversation.cleared"
    by: Actor
    origin: str | None = None
    """The source of the conversation that replaces it, if any."""


class MessageImported(Event, frozen=True):
    """A message was imported from the session this one was forked from, or from another program's file."""

    kind: ClassVar[str] = "message.imported"
    role: str
    """`user`, `assistant` or `tool`."""
    text: str
    at_ms: int
    """The time at which it was originally sent."""
    thinking: str = ""
    calls: tuple[ToolRequest, ...] = ()
    call_id: str | None = None
    tool: str | None = None
    is_error: bool = False
    images: tuple[Image, ...] = ()
    usage: UsageReported | None = None
    """The usage of the model call that produced it."""
    origin: dict[str, Any] | None = None
    """Further data of the program that the message came from, in that program's terms. The model does not get this; a message
    without text, calls and pictures is meant for clients only.
    """


class ThinkingDelta(Event, frozen=True):
    kind: ClassVar[str] = "thinking.delta"
    prunable: ClassVar[bool] = True
    text: str


class TextDelta(Event, frozen=True):
    kind: ClassVar[str] = "text.delta"
    prunable: ClassVar[bool] = True
    text: str


class MessageCompleted(Event, frozen=True):
    """One whole assistant message: the deltas before it, again in one piece, with the calls it asks for."""

    kind: ClassVar[str] = "message.completed"
    message_id: str
    text: str
    thinking: str = ""
    calls: tuple[ToolRequest, ...] = ()
    carry: dict[str, Any] | None = None
    """Data that the provider wants returned with this message, such as a signature; it is opaque to every other reader."""
    cut_short: bool = False
    """The run was stopped in the middle of the message, which is truncated."""
    stop_reason: str = ""
    """`length` when the provider stopped it at a limit; empty when the message is whole."""
