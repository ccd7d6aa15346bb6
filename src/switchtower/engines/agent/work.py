"""One run's own things: its task, its desk, its tools and what has been allowed so far."""

from msgspec import Struct

from switchtower.core import engine, policy
from switchtower.engines.agent.changes import ChangeTracker
from switchtower.tools import registry


class AgentRun(Struct):
    task: engine.Task
    context: engine.RunContext
    toolbox: registry.Toolbox
    policy: policy.Policy
    changes: ChangeTracker
    folder: tuple[int, int]
    """The workspace's device and inode when the run began: a path can lead elsewhere later."""


class RunStopped(Exception):
    """A decision ended the run, or an extension that wants nothing of the model."""

    def __init__(self, result: engine.RunResult) -> None:
        super().__init__(result.summary)
        self.result = result
