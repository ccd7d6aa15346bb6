"""One turn of the model: its parts become events as they arrive, and one whole message at the end. Runs no tools."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import assert_never

from msgspec import Struct

from switchtower.core import engine, events
from switchtower.models import port

STALL_AFTER = 30.0


class Turn(Struct, frozen=True):
    message: engine.Message
    usage: events.UsageReported
    is_cut: bool = False
    """The provider stopped it at a limit of its length."""


class ModelFailed(Exception):
    """The model raised what no model should; the cause is what it raised. Told apart from a failure of the desk."""


async def take(
    model: port.Model, request: port.Request, desk: engine.Desk, *, quiet: bool = False, stall_after: float = STALL_AFTER
) -> Turn:
    """One message. Raises `port.ModelTrouble` or `ModelFailed`. Only the caller gets what a quiet turn says."""
    text: list[str] = []
    thinking: list[str] = []
    calls: list[events.ToolRequest] = []
    counted: port.Usage | None = None
    stop_reason = ""
    carry: dict[str, object] | None = None
    watch = _StallWatch(model, desk, stall_after)
    try:
        async with watch, aclosing(_guarded(model, request)) as parts:
            async for part in parts:
                watch.last_sign_at = watch.clock()
                match part:
                    case port.TextDelta():
                        text.append(part.text)
                        if not quiet:
                            await desk.emit(events.TextDelta(part.text))
                    case port.ThinkingDelta():
                        thinking.append(part.text)
                        if not quiet:
                            await desk.emit(events.ThinkingDelta(part.text))
                    case port.ToolCall():
                        calls.append(
                            events.ToolRequest(call_id=desk.mint("call"), tool=part.tool, args=part.args, problem=part.problem)
                        )
                    case port.Usage():
                        counted = part
                    case port.Ending():
                        stop_reason = part.stop_reason
                    case port.Carry():
                        carry = part.data
                    case _:
                        assert_never(part)
    except port.ModelTrouble as trouble:
        if counted is not None:
            trouble.usage = _reported(model, counted)
            await desk.emit(trouble.usage)
        raise
    except asyncio.CancelledError:
        if text and not quiet:
            # What people have read stays a part of the conversation. What it was about to call for does not.
            said = events.MessageCompleted(desk.mint("asst"), "".join(text), "".join(thinking), cut_short=True)
            await desk.emit(said)
        raise
    if not (text or calls or stop_reason or _has_spoken(request.conversation)):
        raise port.ModelTrouble("the model answered with nothing", transient=True)
    usage = _reported(model, counted or port.Usage(0, 0))
    message = engine.Message(role="assistant", text="".join(text), calls=tuple(calls), thinking="".join(thinking), carry=carry)
    if not quiet:
        await desk.emit(
            events.MessageCompleted(
                message_id=desk.mint("asst"),
                text=message.text,
                thinking=message.thinking,
                calls=message.calls,
                carry=message.carry,
                stop_reason=stop_reason,
            )
        )
    await desk.emit(usage)
    return Turn(message, usage, is_cut=bool(stop_reason))


class _StallWatch:
    """Reports that the model says nothing, after a while and then less and less often. The caller notes each sign of life."""

    def __init__(self, model: port.Model, desk: engine.Desk, stall_after: float) -> None:
        self.clock = asyncio.get_running_loop().time
        self.last_sign_at = self.clock()
        self._model = model
        self._desk = desk
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
            await self._desk.emit(events.WarningRaised("MODEL_STALLED", message))


def _has_spoken(conversation: Sequence[engine.Message]) -> bool:
    """Whether the model has answered the last user message already: after its tools have run it may have no more to say."""
    for message in reversed(conversation):
        if message.role == "assistant":
            return True
        if message.role == "user":
            return False
    return False


def _reported(model: port.Model, counted: port.Usage) -> events.UsageReported:
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


async def _guarded(model: port.Model, request: port.Request) -> AsyncGenerator[port.Part, None]:
    parts = None
    try:
        parts = model.stream(request)
        async for part in parts:
            yield part
    except port.ModelTrouble:
        raise
    except Exception as error:
        raise ModelFailed from error
    finally:
        # A run cancelled between two parts closes the model's stream now, not whenever it happens to be collected.
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()
