"""What the model server says: replies made of steps, and refusals. Data only.

A script is a sequence of these, one a request, or a function from the request to one. Text, thinking and arguments are
streamed in small pieces, as providers do.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct


class Text(Struct, frozen=True):
    text: str
    piece: int = 0
    """Characters in one piece; 0 is a word at a time."""


class Thinking(Struct, frozen=True):
    text: str
    signature: str = ""


class Call(Struct, frozen=True):
    """A tool call. `args` as a text is sent as it stands, valid or not."""

    tool: str
    args: dict[str, Any] | str
    details: dict[str, Any] | None = None
    """What Google hides in a call and wants back."""


class Pause(Struct, frozen=True):
    seconds: float


class Hold(Struct, frozen=True):
    """Silence until the event is set; without one, until the client goes away."""

    until: asyncio.Event | None = None


class Ping(Struct, frozen=True):
    """A sign of life that says nothing."""


class Raw(Struct, frozen=True):
    """Bytes as they are, in the middle of the stream."""

    data: bytes


class Fail(Struct, frozen=True):
    """An error told inside a stream that began well."""

    type: str
    message: str


class Cut(Struct, frozen=True):
    """The stream ends here. When `politely`, as HTTP ends a body; otherwise the connection is dropped."""

    politely: bool = False


Step = Text | Thinking | Call | Pause | Hold | Ping | Raw | Fail | Cut


class Usage(Struct, frozen=True):
    """`input` is what was not cached."""

    input: int = 10
    output: int = 5
    cache_read: int = 0
    cache_write: int = 0


USUAL = Usage()


class Reply(Struct, frozen=True):
    steps: tuple[Step, ...]
    usage: Usage | None = USUAL
    finish: str | None = None
    """The provider's own word for why it stopped; None is what the steps suggest."""
    model: str = "scripted"


class Refusal(Struct, frozen=True):
    """An answer with an error status."""

    status: int
    message: str = "refused by the script"
    type: str = "error"
    code: str | None = None
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    """Sent in place of the dialect's own error body."""


class Received(Struct):
    """A request as it came, and what became of it."""

    dialect: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    gone: asyncio.Event
    """Set when the client went away before the reply was over."""
    answered: asyncio.Event
    """Set when all of the reply was written."""


Answer = Reply | Refusal
Script = Sequence[Answer] | Callable[[Received], Answer]


def say(text: str, *, thinking: str = "", usage: Usage | None = USUAL, finish: str | None = None) -> Reply:
    steps: tuple[Step, ...] = (Thinking(thinking, "signed"), Text(text)) if thinking else (Text(text),)
    return Reply(steps, usage, finish)


def call(tool: str, text: str = "", **args: Any) -> Reply:
    """A reply that calls one tool, after some text if there is any."""
    return Reply((Text(text), Call(tool, args)) if text else (Call(tool, args),))


def flood(size: int, piece: int = 65_536) -> Reply:
    """So many characters of text."""
    return Reply((Text("x" * size, piece),))


def rate_limited(retry_after: str | None = None) -> Refusal:
    headers = {"retry-after": retry_after} if retry_after is not None else {}
    return Refusal(429, "too many requests", "rate_limit_error", "rate_limit_exceeded", headers)


def overloaded() -> Refusal:
    return Refusal(529, "Overloaded", "overloaded_error")


def overflow(
    message: str = "This model's maximum context length is 8192 tokens. Your messages resulted in 9000 tokens.",
) -> Refusal:
    """As OpenAI says it; Anthropic's own words are `prompt is too long: 9000 tokens > 8192 maximum`."""
    return Refusal(400, message, "invalid_request_error", "context_length_exceeded")
