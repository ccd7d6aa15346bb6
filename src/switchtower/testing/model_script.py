"""The script of the model server: replies made of steps, and refusals. Data only.

A script is a sequence of these, one per request, or a function from the request to one. Text, thinking and arguments are
streamed in small pieces, as providers do.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct


class TextStep(Struct, frozen=True):
    text: str
    piece: int = 0
    """Characters in one piece; 0 is a word at a time."""


class ThinkingStep(Struct, frozen=True):
    text: str
    signature: str = ""


class CallStep(Struct, frozen=True):
    """A tool call. `args` as a text is sent unchanged, valid or not."""

    tool: str
    args: dict[str, Any] | str
    details: dict[str, Any] | None = None
    """Data that Google adds to a call and expects back."""


class PauseStep(Struct, frozen=True):
    seconds: float


class HoldStep(Struct, frozen=True):
    """The server is silent until the event is set; without one, until the client disconnects."""

    until: asyncio.Event | None = None


class PingStep(Struct, frozen=True):
    """A keep-alive without content."""


class RawStep(Struct, frozen=True):
    """Bytes that are sent unchanged, in the middle of the stream."""

    data: bytes


class FailStep(Struct, frozen=True):
    """An error inside a stream that started successfully."""

    type: str
    message: str


class CutStep(Struct, frozen=True):
    """The stream ends here. When `politely`, as HTTP ends a body; otherwise the connection is dropped."""

    politely: bool = False


ReplyStep = TextStep | ThinkingStep | CallStep | PauseStep | HoldStep | PingStep | RawStep | FailStep | CutStep


class ScriptedUsage(Struct, frozen=True):
    """The reported token usage. `input` is the part that was not cached."""

    input: int = 10
    output: int = 5
    cache_read: int = 0
    cache_write: int = 0


USUAL = ScriptedUsage()


class ScriptedReply(Struct, frozen=True):
    steps: tuple[ReplyStep, ...]
    usage: ScriptedUsage | None = USUAL
    finish: str | None = None
    """The provider's own word for why it stopped; None is what the steps suggest."""
    model: str = "scripted"


class ScriptedRefusal(Struct, frozen=True):
    """A response with an error status."""

    status: int
    message: str = "refused by the script"
    type: str = "error"
    code: str | None = None
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    """The body that is sent in place of the dialect's own error body."""


class ReceivedRequest(Struct):
    """A request as it arrived, and its progress."""

    dialect: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    gone: asyncio.Event
    """The server sets it when the client disconnected before the end of the reply."""
    answered: asyncio.Event
    """The server sets it when all of the reply was written."""


ScriptedAnswer = ScriptedReply | ScriptedRefusal
ReplyScript = Sequence[ScriptedAnswer] | Callable[[ReceivedRequest], ScriptedAnswer]


def reply_text(text: str, *, thinking: str = "", usage: ScriptedUsage | None = USUAL, finish: str | None = None) -> ScriptedReply:
    steps: tuple[ReplyStep, ...] = (ThinkingStep(thinking, "signed"), TextStep(text)) if thinking else (TextStep(text),)
    return ScriptedReply(steps, usage, finish)


def reply_call(tool: str, text: str = "", **args: Any) -> ScriptedReply:
    """Returns a reply that calls one tool, after some text if there is any."""
    return ScriptedReply((TextStep(text), CallStep(tool, args)) if text else (CallStep(tool, args),))


def reply_flood(size: int, piece: int = 65_536) -> ScriptedReply:
    """Returns a reply with this many characters of text."""
    return ScriptedReply((TextStep("x" * size, piece),))


def refuse_rate_limited(retry_after: str | None = None) -> ScriptedRefusal:
    headers = {"retry-after": retry_after} if retry_after is not None else {}
    return ScriptedRefusal(429, "too many requests", "rate_limit_error", "rate_limit_exceeded", headers)


def refuse_overloaded() -> ScriptedRefusal:
    return ScriptedRefusal(529, "Overloaded", "overloaded_error")


def refuse_overflow(
    message: str = "This model's maximum context length is 8192 tokens. Your messages resulted in 9000 tokens.",
) -> ScriptedRefusal:
    """Uses OpenAI's message; Anthropic's is `prompt is too long: 9000 tokens > 8192 maximum`."""
    return ScriptedRefusal(400, message, "invalid_request_error", "context_length_exceeded")
