"""Meters what a run has used against its budget, and retries a model call while its failure may be temporary. Every wait is
reported as an event, and a cancelled run stops waiting.
"""

import asyncio

from msgspec import Struct
from msgspec.structs import replace

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.engines.agent import turns as agent_turns
from switchtower.engines.agent.context import AgentServices
from switchtower.models import port

MINUTE_MS = 60_000


class BudgetExceeded(Exception):
    """The model may not be called again; the text gives the reason."""


class BudgetMeter(Struct):
    """Counts every model call of one run: turns, summaries and failed attempts."""

    task: engine.Task
    turns: int
    tokens: int
    cost: float
    unpriced: str = ""
    """A model that was used and whose price is unknown."""

    @classmethod
    def from_task(cls, task: engine.Task) -> "BudgetMeter":
        """Restores the meter, so that a run that a restart interrupted continues with its earlier usage."""
        return cls(task, task.turns_taken, task.tokens_used, task.cost)

    def add(self, usage: events.UsageReported) -> None:
        self.turns += 1
        self.tokens += usage.input_tokens + usage.output_tokens
        self.cost += usage.cost or 0.0
        if usage.cost is None and usage.input_tokens + usage.output_tokens:
            self.unpriced = f"{usage.provider} {usage.model}"

    @property
    def tokens_left(self) -> int | None:
        """The most tokens that the next answer may have; None without a limit."""
        limit = self.task.budget.max_tokens
        return None if limit is None else max(1, limit - self.tokens)

    @property
    def is_out_of_tokens(self) -> bool:
        limit = self.task.budget.max_tokens
        return limit is not None and self.tokens >= limit

    @property
    def deadline_ms(self) -> int | None:
        """The time at which the run has used up its time budget; None without a limit."""
        minutes = self.task.budget.max_minutes
        return None if minutes is None else self.task.started_at_ms + round(minutes * MINUTE_MS)

    def raise_if_exceeded(self, now_ms: int) -> None:
        """Raises `BudgetExceeded` when the model may not be called again."""
        if (reason := self._find_exceeded_limit(now_ms)) is not None:
            raise BudgetExceeded(f"the run was stopped by its budget: {reason}")

    def describe_overrun(self) -> str | None:
        """Returns by how much the run exceeded its budget; None when it did not."""
        budget = self.task.budget
        if budget.max_tokens is not None and self.tokens > budget.max_tokens:
            return f"{self.tokens:,} of {budget.max_tokens:,} tokens"
        if budget.max_cost is not None and self.cost > budget.max_cost:
            return f"${self.cost:.4f} of ${budget.max_cost:.4f}"
        return None

    def _find_exceeded_limit(self, now_ms: int) -> str | None:
        budget = self.task.budget
        if budget.max_turns is not None and self.turns >= budget.max_turns:
            return f"it took {self.turns} turns of the model, and may take {budget.max_turns}"
        if budget.max_tokens is not None and self.tokens >= budget.max_tokens:
            return f"it took {self.tokens} tokens, and may take {budget.max_tokens}"
        if budget.max_cost is not None and self.cost >= budget.max_cost:
            return f"it cost ${self.cost:.4f}, and may cost ${budget.max_cost:.4f}"
        if budget.max_cost is not None and self.unpriced:
            return f"the price of {self.unpriced} is unknown, so its limit of ${budget.max_cost:.4f} cannot be checked"
        minutes = (now_ms - self.task.started_at_ms) / MINUTE_MS
        if budget.max_minutes is not None and minutes >= budget.max_minutes:
            return f"it took {minutes:.1f} minutes, and may take {budget.max_minutes:g}"
        return None


class _RetryWaits(Struct):
    """The waits of one model call so far."""

    attempt: int = 1
    paused: float = 0.0
    """The seconds waited for a provider that takes no calls."""
    announced: bool = False

    def compute_delay(self, error: port.ModelError, services: AgentServices, seconds_left: float | None) -> float | None:
        """Returns the seconds to wait before the next attempt; None when the call has failed."""
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
    meter: BudgetMeter,
    *,
    quiet: bool = False,
    retries: bool = True,
) -> agent_turns.ModelTurn:
    """Returns one message of the model, no longer than the run's budget allows. A wait that would end after the run's time is not
    started. Raises `BudgetExceeded` when failed attempts have used the budget up.
    """
    waits = _RetryWaits()
    while True:
        try:
            limited = replace(request, max_output_tokens=meter.tokens_left)
            turn = await agent_turns.take_turn(model, limited, context, quiet=quiet, stall_after=services.stall_after)
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
