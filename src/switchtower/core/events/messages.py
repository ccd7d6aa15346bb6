"""What is said: by people, by models, elsewhere."""

from typing import Any, ClassVar

from switchtower.core.events.enums import Delivery
from switchtower.core.events.runs import UsageReported
from switchtower.core.events.values import Actor, Event, Image, ToolRequest


class MessageQueued(Event, frozen=True):
    """A message for a run that is under way, or for after it."""

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
    """A queued message will not be delivered: the run it waited for did not end well."""

    kind: ClassVar[str] = "message.withdrawn"
    message_id: str
    reason: str


class PromptExpanded(Event, frozen=True):
    """What the user's last message became before the model read it: a template filled in, files brought in."""

    kind: ClassVar[str] = "prompt.expanded"
    text: str
    sources: tuple[str, ...] = ()
    """The files it came from."""


class ConversationCleared(Event, frozen=True):
    """From here on the model is told nothing of what was said before. The journal keeps it."""

    kind: ClassVar[str] = "conversation.cleared"
    by: Actor
    origin: str | None = None
    """What the conversation goes on with instead, if anything."""


class MessageImported(Event, frozen=True):
    """A message that was said elsewhere: in the session this one was forked from, or in another program's file."""

    kind: ClassVar[str] = "message.imported"
    role: str
    """`user`, `assistant` or `tool`."""
    text: str
    at_ms: int
    """When it was said."""
    thinking: str = ""
    calls: tuple[ToolRequest, ...] = ()
    call_id: str | None = None
    tool: str | None = None
    is_error: bool = False
    images: tuple[Image, ...] = ()
    usage: UsageReported | None = None
    """What the model took that said it."""
    origin: dict[str, Any] | None = None
    """What else the program knows of it that has it as a message, in that program's terms. The model does not get this; a message
    without text, calls and pictures is there for clients alone."""


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
    """What the provider wants handed back with this message, such as a signature; nobody else can read it."""
    cut_short: bool = False
    """The run was stopped in the middle of it; it is as long as it got."""
    stop_reason: str = ""
    """`length` when the provider stopped it at a limit; empty when it is whole."""
