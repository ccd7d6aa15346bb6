"""A turn of the model, tried again when its failure may pass. Every retry is an event, and a cancelled run waits no longer."""

import asyncio

from switchtower.core import engine, events
from switchtower.engines.agent import turns
from switchtower.engines.agent.kit import Kit
from switchtower.models import port


async def take(
    model: port.Model, request: port.Request, desk: engine.Desk, kit: Kit, *, quiet: bool = False, retries: bool = True
) -> turns.Turn:
    attempt = 1
    while True:
        try:
            turn = await turns.take(model, request, desk, quiet=quiet)
        except port.ModelTrouble as trouble:
            delay = kit.backoff.delay(attempt, trouble, kit.randomness) if retries else None
            if delay is None:
                if attempt > 1:
                    await desk.emit(events.RetryEnded(attempt, success=False, reason=trouble.message))
                raise
            attempt += 1
            await desk.emit(
                events.RetryScheduled(
                    attempt=attempt,
                    max_attempts=kit.backoff.max_attempts,
                    delay_ms=round(delay * 1_000),
                    reason=trouble.message,
                )
            )
            await desk.flush()
            try:
                await desk.unless_stopped("retry", asyncio.sleep(delay))
            except engine.StepStopped:
                await desk.emit(events.RetryEnded(attempt, success=False, reason="Retry cancelled"))
                raise trouble from None
        else:
            if attempt > 1:
                await desk.emit(events.RetryEnded(attempt, success=True))
            return turn
