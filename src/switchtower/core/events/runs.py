"""A run from its start to its end, with its warnings and errors, and its model calls: usage, retries and compaction."""

from typing import ClassVar

from switchtower.core.events.values import Actor, Criterion, CriterionResult, Event, Image, Outcome, Purpose, Rule


class RunStarted(Event, frozen=True):
    kind: ClassVar[str] = "run.started"
    text: str
    by: Actor
    message_id: str | None = None
    headless: bool = False
    acceptance: tuple[Criterion, ...] = ()
    purpose: Purpose = Purpose.WORK
    force: bool = False
    """An undo or redo also restores files that were changed since."""
    images: tuple[Image, ...] = ()
    rules: tuple[Rule, ...] = ()
    """Policy rules for this run alone."""


class PhaseChanged(Event, frozen=True):
    """The current activity of a run, for users to read."""

    kind: ClassVar[str] = "run.phase"
    prunable: ClassVar[bool] = True
    phase: str
    detail: str | None = None


class StepStopped(Event, frozen=True):
    """A user stopped one step of a run, `retry` or `compaction`; the run continues without it."""

    kind: ClassVar[str] = "run.step_stopped"
    step: str
    by: Actor


class WarningRaised(Event, frozen=True):
    kind: ClassVar[str] = "warning"
    code: str
    message: str
    detail: str | None = None


RUN_INTERRUPTED = "RUN_INTERRUPTED"
"""The error code of a run that was interrupted by the end of its daemon or its machine."""


class ErrorRaised(Event, frozen=True):
    kind: ClassVar[str] = "error"
    code: str
    message: str
    retryable: bool = False
    detail: str | None = None


class RunCancelRequested(Event, frozen=True):
    kind: ClassVar[str] = "run.cancel_requested"
    by: Actor
    reason: str | None = None
    force: bool = False
    """The program is killed without being asked to end by itself."""


class RunCompleted(Event, frozen=True):
    kind: ClassVar[str] = "run.completed"
    outcome: Outcome
    summary: str
    exit_code_hint: int
    acceptance: tuple[CriterionResult, ...] = ()
    exit_code: int | None = None
    """The program's exit code, when the run was one; a flow's exit code as REP defines it."""


def format_seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1_000:.1f} s" if milliseconds < 10_000 else f"{round(milliseconds / 1_000)} s"


class UsageReported(Event, frozen=True):
    """The usage of one model call. `cost` is in US dollars, None when no price is known."""

    kind: ClassVar[str] = "model.usage"
    provider: str
    model: str
    input_tokens: int = 0
    """All input tokens, cached or not."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float | None = None
    context_window: int | None = None
    is_estimate: bool = False
    """The provider did not count; tokens are estimated."""


class RetryScheduled(Event, frozen=True):
    """A model call failed in a way that may pass. Its streamed text is void: the message starts again."""

    kind: ClassVar[str] = "model.retry"
    attempt: int
    max_attempts: int
    delay_ms: int
    reason: str
    cause: str = "failure"
    """`failure`, `rate_limit`, or `paused`: no call was made, because the provider has failed too often."""

    @property
    def notice(self) -> str:
        """The next step, for users to read."""
        match self.cause:
            case "rate_limit":
                return f"Rate limited (429). Retrying in {format_seconds(self.delay_ms)}."
            case "paused":
                return f"Provider paused. Retrying in {format_seconds(self.delay_ms)}."
            case _:
                return f"Model call failed; retrying ({self.attempt} of {self.max_attempts}) in {format_seconds(self.delay_ms)}"


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
    """The model gets the summary from here on, in place of all but the last `kept` messages of user and assistant."""

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
