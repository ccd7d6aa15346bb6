"""One run's own things: its task, its desk, its tools and what has been allowed so far.

What an agent works with, passed in as one: models, tools, the keepers of the workspace, and its settings."""

import random
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct, field

from switchtower.core import events
from switchtower.core import policy as core_policy
from switchtower.core.ports import engine
from switchtower.engines.agent import turns
from switchtower.engines.agent.prompts.catalog import PromptCatalog
from switchtower.engines.agent.trust import FolderTrust
from switchtower.engines.agent.undo import ChangeTracker
from switchtower.extensions.loader import ExtensionLoader
from switchtower.models import port, provider_errors
from switchtower.tools import registry
from switchtower.tools.mcp.servers import McpServers
from switchtower.tools.snapshots.checkpoints import Checkpoints


class AgentRun(Struct):
    task: engine.Task
    context: engine.RunContext
    toolbox: registry.Toolbox
    policy: core_policy.Policy
    changes: ChangeTracker
    folder: tuple[int, int]
    """The workspace's device and inode when the run began: a path can lead elsewhere later."""


class RunStopped(Exception):
    """A decision ended the run, or an extension that wants nothing of the model."""

    def __init__(self, result: engine.RunResult) -> None:
        super().__init__(result.summary)
        self.result = result


OpenModel = Callable[[str, str | None], Awaitable[port.Model]]
"""From a provider's name and a model's to a model; raises `errors.ProviderNotConfigured`."""


class AgentServices(Struct, frozen=True):
    open_model: OpenModel
    toolbox: registry.Toolbox
    checkpoints: Checkpoints
    servers: McpServers
    prompts: PromptCatalog = field(default_factory=lambda: PromptCatalog(None))
    extensions: ExtensionLoader = field(default_factory=ExtensionLoader)
    dialog_timeout: float = 60.0
    """Seconds that a question of an extension or of the agent waits for an answer, unless it says otherwise."""
    trust: FolderTrust | None = None
    """Which folders count as trusted; None trusts all."""
    rules: tuple[events.Rule, ...] = ()
    """The configured policy."""
    backoff: provider_errors.Backoff = field(default_factory=provider_errors.Backoff)
    stall_after: float = turns.STALL_AFTER
    """Seconds without a word of the model after which the run reports that it still waits."""
    compact_at: float = 0.8
    """The part of the context window from which on the conversation is summarised; 0 never does."""
    randomness: Callable[[], float] = random.random
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
