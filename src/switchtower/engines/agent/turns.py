"""One turn of the model: its parts become events as they arrive, and one whole message at the end. Runs no tools."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import assert_never

from switchtower.core import engine, events
from switchtower.models import port


class ModelFailed(Exception):
    """The model raised; the cause is what it raised. Told apart from a failure of the desk, which is not the model's."""


async def take(
    model: port.Model, conversation: Sequence[engine.Message], tools: Sequence[port.ToolSpec], desk: engine.Desk
) -> engine.Message:
    text: list[str] = []
    thinking: list[str] = []
    calls: list[events.ToolRequest] = []
    async with aclosing(_guarded(model, conversation, tools)) as parts:
        async for part in parts:
            match part:
                case port.TextDelta():
                    text.append(part.text)
                    await desk.emit(events.TextDelta(part.text))
                case port.ThinkingDelta():
                    thinking.append(part.text)
                    await desk.emit(events.ThinkingDelta(part.text))
                case port.ToolCall():
                    calls.append(events.ToolRequest(call_id=desk.mint("call"), tool=part.tool, args=part.args))
                case port.Usage():
                    pass
                case _:
                    assert_never(part)
    completed = events.MessageCompleted(
        message_id=desk.mint("asst"), text="".join(text), thinking="".join(thinking), calls=tuple(calls)
    )
    await desk.emit(completed)
    return engine.Message(role="assistant", text=completed.text, calls=completed.calls)


async def _guarded(
    model: port.Model, conversation: Sequence[engine.Message], tools: Sequence[port.ToolSpec]
) -> AsyncGenerator[port.Part, None]:
    parts: AsyncIterator[port.Part] | None = None
    try:
        parts = model.stream(conversation, tools)
        async for part in parts:
            yield part
    except Exception as error:
        raise ModelFailed from error
    finally:
        # A run cancelled between two parts closes the model's stream now, not whenever it happens to be collected.
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()
