"""A model call, retried while its failure may pass. Every wait is an event, and a cancelled run stops waiting."""

import asyncio

from msgspec import Struct
from msgspec.structs import replace

from switchtower.core import engine, events
from switchtower.engines.agent import budget, turns
from switchtower.engines.agent.kit import Kit
from switchtower.models import port


class _Waits(Struct):
    """What one call has waited for so far."""

    attempt: int = 1
    paused: float = 0.0
    """Seconds, for a provider that takes no calls."""
    announced: bool = False

    def delay_after(self, trouble: port.ModelTrouble, kit: Kit, seconds_left: float | None) -> float | None:
        """How long to wait before the next attempt; None when the call has failed."""
        if trouble.is_paused:
            delay = kit.backoff.asked_delay(trouble.retry_after or 0.0, kit.randomness)
            if delay is None or self.paused + delay > kit.backoff.longest_pause:
                return None
        else:
            delay = kit.backoff.delay(self.attempt, trouble, kit.randomness)
        if delay is None or (seconds_left is not None and delay >= seconds_left):
            return None
        if trouble.is_paused:
            self.paused += delay
        else:
            self.attempt += 1
        return delay


async def take(
    model: port.Model,
    request: port.Request,
    desk: engine.Desk,
    kit: Kit,
    meter: budget.Meter,
    *,
    quiet: bool = False,
    retries: bool = True,
) -> turns.Turn:
    """One message of the model, no longer than the run's budget allows. A wait that would end after the run's time is not begun.
    Raises `budget.Exceeded` when failed attempts have used the budget up."""
    waits = _Waits()
    while True:
        try:
            limited = replace(request, max_output_tokens=meter.tokens_left)
            turn = await turns.take(model, limited, desk, quiet=quiet, stall_after=kit.stall_after)
        except port.ModelTrouble as trouble:
            if trouble.usage is not None:
                meter.add(trouble.usage)
                meter.check(kit.now_ms())
            left = None if meter.deadline_ms is None else (meter.deadline_ms - kit.now_ms()) / 1_000
            delay = waits.delay_after(trouble, kit, left) if retries else None
            if delay is None:
                if waits.announced:
                    await desk.emit(events.RetryEnded(waits.attempt, success=False, reason=trouble.message))
                raise
            waits.announced = True
            await desk.emit(
                events.RetryScheduled(
                    attempt=waits.attempt,
                    max_attempts=kit.backoff.max_attempts,
                    delay_ms=round(delay * 1_000),
                    reason=trouble.message,
                    cause="paused" if trouble.is_paused else "rate_limit" if trouble.status == 429 else "failure",
                )
            )
            await desk.flush()
            try:
                await desk.unless_stopped("retry", asyncio.sleep(delay))
            except engine.StepStopped:
                await desk.emit(events.RetryEnded(waits.attempt, success=False, reason="Retry cancelled"))
                raise trouble from None
        else:
            meter.add(turn.usage)
            if waits.announced:
                await desk.emit(events.RetryEnded(waits.attempt, success=True))
            return turn
