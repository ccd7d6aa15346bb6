"""What a model took, its failures, and its context made smaller."""

from typing import ClassVar

from switchtower.core.events.event import Event


class UsageReported(Event, frozen=True):
    """What one call of a model took. `cost` is in US dollars, None when no price is known."""

    kind: ClassVar[str] = "model.usage"
    provider: str
    model: str
    input_tokens: int = 0
    """All that went in, cached or not."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float | None = None
    context_window: int | None = None


class RetryScheduled(Event, frozen=True):
    """A model call failed in a way that may pass. What it had streamed is void: the message begins again."""

    kind: ClassVar[str] = "model.retry"
    attempt: int
    max_attempts: int
    delay_ms: int
    reason: str


class RetryEnded(Event, frozen=True):
    kind: ClassVar[str] = "model.retry_ended"
    attempt: int
    success: bool
    reason: str | None = None


class CompactionStarted(Event, frozen=True):
    """`reason` is `threshold`, `overflow` or `requested`."""

    kind: ClassVar[str] = "context.compaction_started"
    reason: str


class ContextCompacted(Event, frozen=True):
    """From here on the model is told the summary in place of all but the last `kept` messages of user and assistant."""

    kind: ClassVar[str] = "context.compacted"
    reason: str
    summary: str
    kept: int
    tokens_before: int
    tokens_after: int


class CompactionFailed(Event, frozen=True):
    kind: ClassVar[str] = "context.compaction_failed"
    reason: str
    aborted: bool = False
