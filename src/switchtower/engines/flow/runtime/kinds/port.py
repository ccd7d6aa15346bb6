"""What a kind is, and what it is given to work with. Does nothing itself."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from switchtower.engines.flow.runtime import event_buffer

LEVELS = frozenset({"debug", "info", "warning", "error"})


class StepEnvironment(Struct, kw_only=True):
    """Where a run happens; the same for all of its steps."""

    run_id: str
    workspace: str
    """The folder that the run works in."""
    events: event_buffer.EventBuffer
    allow_shell: bool = False
    """Whether steps may start programs."""
    policy: dict[str, Any] = {}
    """The flow's own, `constants.policy`, for kinds that apply it."""
    tower: "SessionSteps | None" = None
    closings: dict[str, Callable[[], Awaitable[None]]] = msgspec.field(default_factory=dict)
    """Called at the end of the run, however it ends. Each under a name, so that many steps can ask for the same."""


class StepContext(Struct, frozen=True):
    """One try of one step."""

    setting: StepEnvironment
    step_id: str
    attempt: int = 0

    def log(self, level: str, message: str) -> None:
        self.setting.events.add_log(level, message, step_id=self.step_id)


Context = StepContext
"""The name that packages with step kinds import, as in examples/opcua-simulation."""


class StepKind(Protocol):
    """A kind describes itself with `summary` (a sentence), `inputs` and `outputs` (names and what each is), which
    `tower flow kinds` shows. One that never waits may have `instant = True`: its steps then need no event loop and do not count
    against the limit of steps at once. One that only waits for a user or an agent has `patient = True`, and does not count."""

    async def run(self, given: Mapping[str, Any], context: StepContext, /) -> Mapping[str, Any]:
        """Does the step and returns its outputs, which JSON can say. Raises `faults.StepFailed`. When it is cancelled it
        leaves nothing running."""


class SessionSteps(Protocol):
    """What only a tower can do for a step."""

    async def run_step(self, kind: str, given: Mapping[str, Any], context: StepContext, /) -> Mapping[str, Any]:
        """`agent.run`: a session does the step. `approval`: waits until somebody decides. Raises `faults.StepFailed`, also for
        a no."""
