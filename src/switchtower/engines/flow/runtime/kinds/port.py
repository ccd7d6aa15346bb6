"""The interface of a step kind, and the context that a kind works with."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from switchtower.engines.flow.runtime import event_buffer

LEVELS = frozenset({"debug", "info", "warning", "error"})


class StepEnvironment(Struct, kw_only=True):
    """The environment of a run; it is the same for all of its steps."""

    run_id: str
    workspace: str
    """The folder that the run works in."""
    events: event_buffer.EventBuffer
    allow_shell: bool = False
    """True when steps may start programs."""
    policy: dict[str, Any] = {}
    """The flow's own `constants.policy`, for kinds that apply it."""
    tower: "SessionSteps | None" = None
    closings: dict[str, Callable[[], Awaitable[None]]] = msgspec.field(default_factory=dict)
    """Functions that are called at the end of the run, however it ends. Each has a name, so that many steps can register the same
    one.
    """


class StepContext(Struct, frozen=True):
    """One attempt of one step."""

    setting: StepEnvironment
    step_id: str
    attempt: int = 0

    def log(self, level: str, message: str) -> None:
        self.setting.events.add_log(level, message, step_id=self.step_id)


class StepKind(Protocol):
    """A kind describes itself with `summary` (a sentence), `inputs` and `outputs` (names and what each is), which
    `tower flow kinds` shows. A kind that never waits may have `instant = True`: its steps then need no event loop and do not
    count against the limit of concurrent steps. A kind that only waits for a user or an agent has `patient = True`, and does not
    count either.
    """

    async def run(self, given: Mapping[str, Any], context: StepContext, /) -> Mapping[str, Any]:
        """Does the step and returns its outputs, which must be JSON values. Raises `failures.StepFailed`. When it is cancelled,
        it leaves nothing running.
        """


class SessionSteps(Protocol):
    """The steps that only the daemon can do."""

    async def run_step(self, kind: str, given: Mapping[str, Any], context: StepContext, /) -> Mapping[str, Any]:
        """`agent.run`: a session does the step. `approval`: waits until a user decides. Raises `failures.StepFailed`, also for a
        denial.
        """
