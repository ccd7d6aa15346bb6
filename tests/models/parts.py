"""What the tests of models share: conversations to ask, and what came back, sorted."""

from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

import pytest
from msgspec import Struct

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.models import port
from switchtower.models.catalog import Catalog
from switchtower.testing import model_script as script
from switchtower.testing.model_server import ModelServer

SECRET_KEY = "sk-this-is-a-key-nobody-may-see"

READ_FILE = port.ToolSpec(
    name="read_file",
    description="Read a file",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)

PartT = TypeVar("PartT", bound=port.Part)


class ScriptedProvider(Struct):
    server: ModelServer
    catalog: Catalog
    model: port.Model

    async def ask(self, *conversation: engine.Message, **options: Any) -> "CollectedReply":
        return await ask(self.model, *conversation, **options)

    async def refuse(self, *conversation: engine.Message, **options: Any) -> port.ModelError:
        """Asks, and expects trouble."""
        with pytest.raises(port.ModelError) as raised:
            await ask(self.model, *conversation, **options)
        return raised.value

    @property
    def received(self) -> script.ReceivedRequest:
        return self.server.requests[-1]

    @property
    def told(self) -> list[dict[str, Any]]:
        """The messages of the last request, without the system prompt."""
        messages: list[dict[str, Any]] = self.received.body["messages"]
        return [message for message in messages if message["role"] != "system"]


class MakeProvider(Protocol):
    def __call__(self, *answers: script.ScriptedAnswer, dialect: str = ..., **table: Any) -> Awaitable[ScriptedProvider]: ...


class CollectedReply(Struct):
    parts: list[port.Part]

    def list_parts(self, kind: type[PartT]) -> list[PartT]:
        return [part for part in self.parts if isinstance(part, kind)]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.list_parts(port.TextPart))

    @property
    def thinking(self) -> str:
        return "".join(part.text for part in self.list_parts(port.ThinkingPart))

    @property
    def calls(self) -> list[port.ToolCallPart]:
        return self.list_parts(port.ToolCallPart)

    @property
    def usage(self) -> port.UsagePart:
        [usage] = self.list_parts(port.UsagePart)
        return usage

    @property
    def message(self) -> engine.Message:
        """As the engine keeps it, with ids of its own for the calls."""
        carries = self.list_parts(port.CarryPart)
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


async def ask(model: port.Model, *conversation: engine.Message, **options: Any) -> CollectedReply:
    request = port.CompletionRequest(conversation or (make_user_message("hello"),), **options)
    return CollectedReply([part async for part in model.stream(request)])


def make_user_message(text: str) -> engine.Message:
    return engine.Message(role="user", text=text)


def make_tool_result(call: events.ToolRequest, text: str, *, is_error: bool = False) -> engine.Message:
    return engine.Message(role="tool", text=text, call_id=call.call_id, tool=call.tool, is_error=is_error)
