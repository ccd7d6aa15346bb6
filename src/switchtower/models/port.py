"""The model port: the input is a conversation and the available tools, the output is the parts of one assistant message as they
arrive.

A model keeps no state: its progress follows from the conversation, so a run continues after a restart. It knows tools only as
specifications and runs none.

The checks for pictures that a model can read are here too.
"""

import base64
import binascii
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from msgspec import Struct

from switchtower.core import events
from switchtower.core.ports import engine


class ToolSpec(Struct, frozen=True):
    """A tool as a model gets it; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class TextPart(Struct, frozen=True):
    text: str


class ThinkingPart(Struct, frozen=True):
    text: str


class ToolCallPart(Struct, frozen=True):
    """A call that the model requests. The runner of the call assigns its id."""

    tool: str
    args: dict[str, Any]
    problem: str | None = None
    """The reason why the call cannot be run: its arguments were not a JSON object, for instance."""


class UsagePart(Struct, frozen=True):
    """The usage of a message, for models that count. Input includes cached tokens."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float | None = None
    """The cost in US dollars; None when no price is known."""
    is_estimate: bool = False
    """The provider did not count; tokens are estimated from the length of the texts."""


class EndingPart(Struct, frozen=True):
    """The message is incomplete: the provider stopped it at a limit."""

    stop_reason: str
    """`length`."""


class CarryPart(Struct, frozen=True):
    """Data that the provider needs back with this message in later requests."""

    data: dict[str, Any]


Part = TextPart | ThinkingPart | ToolCallPart | UsagePart | EndingPart | CarryPart


class CompletionRequest(Struct, frozen=True):
    """The input of a model call."""

    conversation: Sequence[engine.Message]
    tools: Sequence[ToolSpec] = ()
    system: str = ""
    thinking: str | None = None
    """The level of thinking: `off`, `minimal`, `low`, `medium`, `high`, `xhigh`; None is the model's default."""
    max_output_tokens: int | None = None
    """The longest answer; None is the model's own limit."""


class Model(Protocol):
    @property
    def provider(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def context_window(self) -> int | None:
        """The most tokens of a conversation; None when it is unknown."""
        ...

    def stream(self, request: CompletionRequest) -> AsyncIterator[Part]:
        """Yields one assistant message. A `ModelError` has the cause and whether it may be temporary; anything else is a bug."""
        ...


RATE_LIMITED = frozenset({429, 529})
"""529 is Anthropic's status for an overloaded server."""


class ModelError(Exception):
    """A model call failed. The message is one sentence for people and contains no key."""

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
        """The failure may be temporary: a rate limit, a server error, a broken stream."""
        self.retry_after = retry_after
        """The seconds that the provider asked to wait."""
        self.overflow = overflow
        """The conversation is longer than the model accepts."""
        self.status = status
        self.is_paused = is_paused
        """No call was made, because the provider is paused; `retry_after` is how long that lasts."""

        self.usage: events.UsageReported | None = None
        """The usage of the failed call, as far as it is known."""

    @property
    def is_rate_limit(self) -> bool:
        return self.status in RATE_LIMITED


MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The media types that every provider with image input accepts."""
LARGEST = 20 * 1024 * 1024
"""The most bytes. No provider accepts more in one picture."""
TOKENS = 1_500
"""The approximate tokens of one picture; providers count them differently."""


def find_image_problem(image: events.Image) -> str | None:
    """Returns the reason why it cannot be sent to a model, as one sentence with a remedy; None when it can."""
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
    """Returns the bytes of a picture that has no problem."""
    return base64.b64decode(image.data, validate=True)
