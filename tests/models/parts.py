"""What the tests of models share: conversations to ask, and what came back, sorted."""

from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

import pytest
from msgspec import Struct

from switchtower.core import engine, events
from switchtower.models import port
from switchtower.models.catalog import Catalog
from switchtower.testing import model_server_script as script
from switchtower.testing.model_server import ModelServer

KEY = "sk-this-is-a-key-nobody-may-see"

READ_FILE = port.ToolSpec(
    name="read_file",
    description="Read a file",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)

PartT = TypeVar("PartT", bound=port.Part)


class Provider(Struct):
    server: ModelServer
    catalog: Catalog
    model: port.Model

    async def ask(self, *conversation: engine.Message, **options: Any) -> "Said":
        return await ask(self.model, *conversation, **options)

    async def refuse(self, *conversation: engine.Message, **options: Any) -> port.ModelTrouble:
        """Asks, and expects trouble."""
        with pytest.raises(port.ModelTrouble) as raised:
            await ask(self.model, *conversation, **options)
        return raised.value

    @property
    def received(self) -> script.Received:
        return self.server.requests[-1]

    @property
    def told(self) -> list[dict[str, Any]]:
        """The messages of the last request, without the system prompt."""
        messages: list[dict[str, Any]] = self.received.body["messages"]
        return [message for message in messages if message["role"] != "system"]


class Provide(Protocol):
    def __call__(self, *answers: script.Answer, dialect: str = ..., **table: Any) -> Awaitable[Provider]: ...


class Said(Struct):
    parts: list[port.Part]

    def of(self, kind: type[PartT]) -> list[PartT]:
        return [part for part in self.parts if isinstance(part, kind)]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.of(port.TextDelta))

    @property
    def thinking(self) -> str:
        return "".join(part.text for part in self.of(port.ThinkingDelta))

    @property
    def calls(self) -> list[port.ToolCall]:
        return self.of(port.ToolCall)

    @property
    def usage(self) -> port.Usage:
        [usage] = self.of(port.Usage)
        return usage

    @property
    def message(self) -> engine.Message:
        """As the engine keeps it, with ids of its own for the calls."""
        carries = self.of(port.Carry)
        calls = tuple(
            events.ToolRequest(call_id=f"call_own_{number}", tool=call.tool, args=call.args)
            for number, call in enumerate(self.calls, start=1)
        )
        return engine.Message(
            role="assistant",
            text=self.text,
            calls=calls,
            thinking=self.thinking,
            carry=carries[0].data if carries else None,
        )


async def ask(model: port.Model, *conversation: engine.Message, **options: Any) -> Said:
    request = port.Request(conversation or (user("hello"),), **options)
    return Said([part async for part in model.stream(request)])


def user(text: str) -> engine.Message:
    return engine.Message(role="user", text=text)


def result(call: events.ToolRequest, text: str, *, is_error: bool = False) -> engine.Message:
    return engine.Message(role="tool", text=text, call_id=call.call_id, tool=call.tool, is_error=is_error)
