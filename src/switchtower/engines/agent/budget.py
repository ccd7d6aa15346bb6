"""What a run has taken so far, held against what it may take. Pure; time comes in as an argument."""

from msgspec import Struct

from switchtower.core import engine, events

MINUTE_MS = 60_000


class Spending(Struct):
    turns: int
    tokens: int
    cost: float

    @classmethod
    def of(cls, task: engine.Task) -> "Spending":
        """A run that a restart cut short goes on where it was."""
        return cls(task.turns_taken, task.tokens_used, task.cost)

    def add(self, usage: events.UsageReported) -> None:
        self.turns += 1
        self.tokens += usage.input_tokens + usage.output_tokens
        self.cost += usage.cost or 0.0


def exceeded(spending: Spending, task: engine.Task, now_ms: int) -> str | None:
    """Why the model may not be called once more, or None."""
    budget = task.budget
    if budget.max_turns is not None and spending.turns >= budget.max_turns:
        return f"it took {spending.turns} turns of the model, and may take {budget.max_turns}"
    if budget.max_tokens is not None and spending.tokens >= budget.max_tokens:
        return f"it took {spending.tokens} tokens, and may take {budget.max_tokens}"
    if budget.max_cost is not None and spending.cost >= budget.max_cost:
        return f"it cost ${spending.cost:.4f}, and may cost ${budget.max_cost:.4f}"
    minutes = (now_ms - task.started_at_ms) / MINUTE_MS
    if budget.max_minutes is not None and minutes >= budget.max_minutes:
        return f"it took {minutes:.1f} minutes, and may take {budget.max_minutes:g}"
    return None


def deadline_ms(task: engine.Task) -> int | None:
    """When the run has used up its time; None without a limit."""
    minutes = task.budget.max_minutes
    return None if minutes is None else task.started_at_ms + round(minutes * MINUTE_MS)
