"""The model port: a conversation and the tools on offer go in, the parts of one assistant message come out as they arise.

A model has no memory of its own: where it stands follows from the conversation, so a run goes on after a restart.
It knows tools only as specifications and runs none.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from msgspec import Struct

from switchtower.core import engine


class ToolSpec(Struct, frozen=True):
    """A tool as a model is shown it; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class TextDelta(Struct, frozen=True):
    text: str


class ThinkingDelta(Struct, frozen=True):
    text: str


class ToolCall(Struct, frozen=True):
    """A call that the model asks for. Its id is given by whoever runs it."""

    tool: str
    args: dict[str, Any]


class Usage(Struct, frozen=True):
    """What a message cost, for models that count."""

    input_tokens: int
    output_tokens: int


Part = TextDelta | ThinkingDelta | ToolCall | Usage


class Model(Protocol):
    def stream(self, conversation: Sequence[engine.Message], tools: Sequence[ToolSpec]) -> AsyncIterator[Part]:
        """One assistant message. Any exception it raises ends the run as failed; a `CoreError` says whether to try again."""
        ...
