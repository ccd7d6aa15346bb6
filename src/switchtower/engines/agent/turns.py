"""One turn of the model: its parts become events as they arrive, and one whole message at the end. It runs no tools."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import assert_never

from msgspec import Struct

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.models import port

STALL_AFTER = 30.0


class ModelTurn(Struct, frozen=True):
    message: engine.Message
    usage: events.UsageReported
    is_cut: bool = False
    """The provider truncated it at a length limit."""


class ModelFailed(Exception):
    """The model adapter raised an unexpected exception, which is the cause. This keeps it apart from a failure of the run
    context.
    """


async def take_turn(
    model: port.Model,
    request: port.CompletionRequest,
    context: engine.RunContext,
    *,
    quiet: bool = False,
    stall_after: float = STALL_AFTER,
) -> ModelTurn:
    """Returns one message. Raises `port.ModelError` or `ModelFailed`. The output of a quiet turn goes to the caller only."""
    text: list[str] = []
    thinking: list[str] = []
    calls: list[events.ToolRequest] = []
    counted: port.UsagePart | None = None
    stop_reason = ""
    carry: dict[str, object] | None = None
    watch = _StallWatch(model, context, stall_after)
    try:
        async with watch, aclosing(_stream_guarded(model, request)) as parts:
            async for part in parts:
                watch.last_sign_at = watch.clock()
                match part:
                    case port.TextPart():
                        text.append(part.text)
                        if not quiet:
                            await context.emit(events.TextDelta(part.text))
                    case port.ThinkingPart():
                        thinking.append(part.text)
                        if not quiet:
                            await context.emit(events.ThinkingDelta(part.text))
                    case port.ToolCallPart():
                        calls.append(
                            events.ToolRequest(call_id=context.mint("call"), tool=part.tool, args=part.args, problem=part.problem)
                        )
                    case port.UsagePart():
                        counted = part
                    case port.EndingPart():
                        stop_reason = part.stop_reason
                    case port.CarryPart():
                        carry = part.data
                    case _:
                        assert_never(part)
    except port.ModelError as trouble:
        if counted is not None:
            trouble.usage = _make_usage_event(model, counted)
            await context.emit(trouble.usage)
        raise
    except asyncio.CancelledError:
        if text and not quiet:
            # Text that clients have shown stays a part of the conversation. The calls that the model was about to make do not.
            said = events.MessageCompleted(context.mint("asst"), "".join(text), "".join(thinking), cut_short=True)
            await context.emit(said)
        raise
    if not (text or calls or stop_reason or _has_assistant_message(request.conversation)):
        raise port.ModelError("the model answered with nothing", transient=True)
    usage = _make_usage_event(model, counted or port.UsagePart(0, 0))
    message = engine.Message(role="assistant", text="".join(text), calls=tuple(calls), thinking="".join(thinking), carry=carry)
    if not quiet:
        await context.emit(
            events.MessageCompleted(
                message_id=context.mint("asst"),
                text=message.text,
                thinking=message.thinking,
                calls=message.calls,
                carry=message.carry,
                stop_reason=stop_reason,
            )
        )
    await context.emit(usage)
    return ModelTurn(message, usage, is_cut=bool(stop_reason))


class _StallWatch:
    """Reports that the model sends nothing, after a while and then at growing intervals. The caller notes each sign of life."""

    def __init__(self, model: port.Model, context: engine.RunContext, stall_after: float) -> None:
        self.clock = asyncio.get_running_loop().time
        self.last_sign_at = self.clock()
        self._model = model
        self._context = context
        self._stall_after = stall_after
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._watching = asyncio.create_task(self._watch(), name="stall watch")

    async def __aexit__(self, *_: object) -> None:
        assert self._watching is not None, "entered"
        self._watching.cancel()
        await asyncio.wait({self._watching})

    async def _watch(self) -> None:
        reported_at, patience = self.last_sign_at, self._stall_after
        while True:
            if self.last_sign_at > reported_at:
                patience = self._stall_after
            silent = self.clock() - self.last_sign_at
            if silent < patience:
                await asyncio.sleep(patience - silent)
                continue
            reported_at, patience = self.clock(), patience * 2
            message = f"No data from {self._model.provider} for {round(silent)} s; still waiting"
            await self._context.emit(events.WarningRaised("MODEL_STALLED", message))


def _has_assistant_message(conversation: Sequence[engine.Message]) -> bool:
    """Returns whether the model has already answered the last user message: after its tools have run, its answer may be empty."""
    for message in reversed(conversation):
        if message.role == "assistant":
            return True
        if message.role == "user":
            return False
    return False


def _make_usage_event(model: port.Model, counted: port.UsagePart) -> events.UsageReported:
    return events.UsageReported(
        provider=model.provider,
        model=model.name,
        input_tokens=counted.input_tokens,
        output_tokens=counted.output_tokens,
        cache_read_tokens=counted.cache_read_tokens,
        cache_write_tokens=counted.cache_write_tokens,
        cost=counted.cost,
        context_window=model.context_window,
        is_estimate=counted.is_estimate,
    )


async def _stream_guarded(model: port.Model, request: port.CompletionRequest) -> AsyncGenerator[port.Part, None]:
    parts = None
    try:
        parts = model.stream(request)
        async for part in parts:
            yield part
    except port.ModelError:
        raise
    except Exception as error:
        raise ModelFailed from error
    finally:
        # A run that is cancelled between two parts closes the model's stream now, not whenever it happens to be collected.
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()
