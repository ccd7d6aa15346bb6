"""A model call, retried while its failure may pass. Every wait is an event, and a cancelled run stops waiting."""

import asyncio

from msgspec import Struct
from msgspec.structs import replace

from switchtower.core import engine, events
from switchtower.engines.agent import budget, turns
from switchtower.engines.agent.kit import AgentServices
from switchtower.models import port


class _RetryWaits(Struct):
    """What one call has waited for so far."""

    attempt: int = 1
    paused: float = 0.0
    """Seconds, for a provider that takes no calls."""
    announced: bool = False

    def compute_delay(self, error: port.ModelError, services: AgentServices, seconds_left: float | None) -> float | None:
        """How long to wait before the next attempt; None when the call has failed."""
        if error.is_paused:
            delay = services.backoff.add_jitter(error.retry_after or 0.0, services.randomness)
            if delay is None or self.paused + delay > services.backoff.longest_pause:
                return None
        else:
            delay = services.backoff.compute_delay(self.attempt, error, services.randomness)
        if delay is None or (seconds_left is not None and delay >= seconds_left):
            return None
        if error.is_paused:
            self.paused += delay
        else:
            self.attempt += 1
        return delay


async def take_turn_with_retries(
    model: port.Model,
    request: port.CompletionRequest,
    context: engine.RunContext,
    services: AgentServices,
    meter: budget.BudgetMeter,
    *,
    quiet: bool = False,
    retries: bool = True,
) -> turns.ModelTurn:
    """One message of the model, no longer than the run's budget allows. A wait that would end after the run's time is not begun.
    Raises `budget.Exceeded` when failed attempts have used the budget up."""
    waits = _RetryWaits()
    while True:
        try:
            limited = replace(request, max_output_tokens=meter.tokens_left)
            turn = await turns.take_turn(model, limited, context, quiet=quiet, stall_after=services.stall_after)
        except port.ModelError as trouble:
            if trouble.usage is not None:
                meter.add(trouble.usage)
                meter.raise_if_exceeded(services.now_ms())
            left = None if meter.deadline_ms is None else (meter.deadline_ms - services.now_ms()) / 1_000
            delay = waits.compute_delay(trouble, services, left) if retries else None
            if delay is None:
                if waits.announced:
                    await context.emit(events.RetryEnded(waits.attempt, success=False, reason=trouble.message))
                raise
            waits.announced = True
            await context.emit(
                events.RetryScheduled(
                    attempt=waits.attempt,
                    max_attempts=services.backoff.max_attempts,
                    delay_ms=round(delay * 1_000),
                    reason=trouble.message,
                    cause="paused" if trouble.is_paused else "rate_limit" if trouble.status == 429 else "failure",
                )
            )
            await context.flush()
            try:
                await context.run_step("retry", asyncio.sleep(delay))
            except engine.StepCancelled:
                await context.emit(events.RetryEnded(waits.attempt, success=False, reason="Retry cancelled"))
                raise trouble from None
        else:
            meter.add(turn.usage)
            if waits.announced:
                await context.emit(events.RetryEnded(waits.attempt, success=True))
            return turn
