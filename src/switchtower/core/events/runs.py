"""A run from its start to its end, and what it tells of itself on the way."""

from typing import ClassVar

from switchtower.core.events.event import Event
from switchtower.core.events.nouns import Actor, Criterion, CriterionResult, Image, Rule
from switchtower.core.events.words import Outcome, Purpose


class RunStarted(Event, frozen=True):
    kind: ClassVar[str] = "run.started"
    text: str
    by: Actor
    message_id: str | None = None
    headless: bool = False
    acceptance: tuple[Criterion, ...] = ()
    purpose: Purpose = Purpose.WORK
    force: bool = False
    """An undo or redo that also takes files back which somebody has changed since."""
    images: tuple[Image, ...] = ()
    rules: tuple[Rule, ...] = ()
    """Of the policy, for this run alone."""


class PhaseChanged(Event, frozen=True):
    """What a run is busy with, for people to read."""

    kind: ClassVar[str] = "run.phase"
    prunable: ClassVar[bool] = True
    phase: str
    detail: str | None = None


class StepStopped(Event, frozen=True):
    """Somebody had enough of one step of a run, which goes on without it: `retry` or `compaction`."""

    kind: ClassVar[str] = "run.step_stopped"
    step: str
    by: Actor


class WarningRaised(Event, frozen=True):
    kind: ClassVar[str] = "warning"
    code: str
    message: str
    detail: str | None = None


RUN_INTERRUPTED = "RUN_INTERRUPTED"
"""The code of the error of a run that its daemon or its machine broke off."""


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
    """Without the politeness of asking a program to end by itself."""


class RunCompleted(Event, frozen=True):
    kind: ClassVar[str] = "run.completed"
    outcome: Outcome
    summary: str
    exit_code_hint: int
    acceptance: tuple[CriterionResult, ...] = ()
    exit_code: int | None = None
    """The program's own, when the run was one; a flow's by REP."""
