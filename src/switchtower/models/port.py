"""The model port: a conversation and the tools on offer go in, the parts of one assistant message come out as they arise.

A model has no memory of its own: where it stands follows from the conversation, so a run goes on after a restart.
It knows tools only as specifications and runs none.

Pictures in a conversation: which can be told to a model, and their bytes. Pure."""

import base64
import binascii
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from msgspec import Struct

from switchtower.core import events
from switchtower.core.ports import engine


class ToolSpec(Struct, frozen=True):
    """A tool as a model is shown it; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class TextPart(Struct, frozen=True):
    text: str


class ThinkingPart(Struct, frozen=True):
    text: str


class ToolCallPart(Struct, frozen=True):
    """A call that the model asks for. Its id is given by whoever runs it."""

    tool: str
    args: dict[str, Any]
    problem: str | None = None
    """Why the call cannot be run as it came: its arguments were no JSON object, for instance."""


class UsagePart(Struct, frozen=True):
    """What a message took, for models that count. Input counts all that went in, cached or not."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float | None = None
    """In US dollars; None when no price is known."""
    is_estimate: bool = False
    """The provider did not count; tokens are estimated from the length of the texts."""


class EndingPart(Struct, frozen=True):
    """The message is not whole: the provider stopped it at a limit."""

    stop_reason: str
    """`length`."""


class CarryPart(Struct, frozen=True):
    """What the provider wants handed back with this message in later conversations."""

    data: dict[str, Any]


Part = TextPart | ThinkingPart | ToolCallPart | UsagePart | EndingPart | CarryPart


class CompletionRequest(Struct, frozen=True):
    """What a model is asked."""

    conversation: Sequence[engine.Message]
    tools: Sequence[ToolSpec] = ()
    system: str = ""
    thinking: str | None = None
    """How much to think: `off`, `minimal`, `low`, `medium`, `high`, `xhigh`; None is the model's own way."""
    max_output_tokens: int | None = None
    """How long the answer may be at most; None is the model's own limit."""


class Model(Protocol):
    @property
    def provider(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def context_window(self) -> int | None:
        """How many tokens a conversation may have; None when nobody knows."""
        ...

    def stream(self, request: CompletionRequest) -> AsyncIterator[Part]:
        """One assistant message. A `ModelTrouble` says what went wrong and whether it may pass; anything else is a bug."""
        ...


RATE_LIMITED = frozenset({429, 529})
"""529 is Anthropic's word for a server that has too much to do."""


class ModelError(Exception):
    """A model call failed. The message is one sentence for people and holds no key."""

    def __init__(
        self,
        message: str,
        *,
        transient: bool,
        retry_after: float | None = None,
        overflow: bool = False,
        status: int | None = None,
        is_paused: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.transient = transient
        """It may pass: a rate limit, a server's trouble, a broken stream."""
        self.retry_after = retry_after
        """Seconds that the provider asked to wait."""
        self.overflow = overflow
        """The conversation is longer than the model takes."""
        self.status = status
        self.is_paused = is_paused
        """No call was made, because the provider is paused; `retry_after` is how long that lasts."""

        self.usage: events.UsageReported | None = None
        """What the failed call took, as far as that is known."""

    @property
    def is_rate_limit(self) -> bool:
        return self.status in RATE_LIMITED


MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What every provider that sees takes."""
LARGEST = 20 * 1024 * 1024
"""Bytes. No provider takes more in one picture."""
TOKENS = 1_500
"""What one takes of a context, roughly; they count it each in their own way."""


def find_image_problem(image: events.Image) -> str | None:
    """Why it cannot be told to a model, as one sentence with a remedy; None when it can."""
    if image.media_type not in MEDIA_TYPES:
        kind = "".join(character if character.isprintable() else "?" for character in image.media_type[:60])
        return f"`{kind}` is not a type of picture that models take; hint: use one of {', '.join(MEDIA_TYPES)}"
    if len(image.data) > LARGEST * 4 // 3 + 4:
        return f"it is larger than {LARGEST // 1024**2} MiB; hint: make it smaller"
    try:
        content = base64.b64decode(image.data, validate=True)
    except (binascii.Error, ValueError):
        return "its data is not base64; hint: send the bytes of the file in base64, without a `data:` in front"
    return None if content else "it is empty; hint: send the bytes of the file in base64"


def decode_image(image: events.Image) -> bytes:
    """The bytes of a picture that has no problem."""
    return base64.b64decode(image.data, validate=True)
