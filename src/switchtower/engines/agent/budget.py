"""What a run has taken so far, held against what it may take. Pure; time comes in as an argument."""

from msgspec import Struct

from switchtower.core import engine, events

MINUTE_MS = 60_000


class BudgetExceeded(Exception):
    """The model may not be called once more; the text says why."""


class BudgetMeter(Struct):
    """Counts every call of a model in one run: turns, summaries and failed attempts."""

    task: engine.Task
    turns: int
    tokens: int
    cost: float
    unpriced: str = ""
    """A model that was used and whose price is not known."""

    @classmethod
    def from_task(cls, task: engine.Task) -> "BudgetMeter":
        """A run that a restart cut short continues where it was."""
        return cls(task, task.turns_taken, task.tokens_used, task.cost)

    def add(self, usage: events.UsageReported) -> None:
        self.turns += 1
        self.tokens += usage.input_tokens + usage.output_tokens
        self.cost += usage.cost or 0.0
        if usage.cost is None and usage.input_tokens + usage.output_tokens:
            self.unpriced = f"{usage.provider} {usage.model}"

    @property
    def tokens_left(self) -> int | None:
        """How long the next answer may be; None without a limit."""
        limit = self.task.budget.max_tokens
        return None if limit is None else max(1, limit - self.tokens)

    @property
    def is_out_of_tokens(self) -> bool:
        limit = self.task.budget.max_tokens
        return limit is not None and self.tokens >= limit

    @property
    def deadline_ms(self) -> int | None:
        """When the run has used up its time; None without a limit."""
        minutes = self.task.budget.max_minutes
        return None if minutes is None else self.task.started_at_ms + round(minutes * MINUTE_MS)

    def raise_if_exceeded(self, now_ms: int) -> None:
        """Raises `Exceeded` when the model may not be called once more."""
        if (reason := self._find_exceeded_limit(now_ms)) is not None:
            raise BudgetExceeded(f"the run was stopped by its budget: {reason}")

    def describe_overrun(self) -> str | None:
        """By how much the run took more than it may; None when it did not."""
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
