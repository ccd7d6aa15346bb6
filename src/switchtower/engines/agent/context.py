"""The state of one agent run (its task, run context, tools and approvals so far), and the services that are passed to the agent
engine: models, tools, checkpoints, trust and settings.
"""

import random
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct, field

from switchtower.core import events
from switchtower.core import policy as core_policy
from switchtower.core.ports import engine
from switchtower.engines.agent import turns
from switchtower.engines.agent.prompts.system_prompt import PromptCatalog
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
    """The device and inode of the workspace when the run started; later the path may lead to another folder."""


class RunStopped(Exception):
    """A decision ended the run, or an extension finished without a prompt for the model."""

    def __init__(self, result: engine.RunResult) -> None:
        super().__init__(result.summary)
        self.result = result


OpenModel = Callable[[str, str | None], Awaitable[port.Model]]
"""Opens a model, given the name of a provider and of a model; raises `errors.ProviderNotConfigured`."""


class AgentServices(Struct, frozen=True):
    open_model: OpenModel
    toolbox: registry.Toolbox
    checkpoints: Checkpoints
    servers: McpServers
    prompts: PromptCatalog = field(default_factory=lambda: PromptCatalog(None))
    extensions: ExtensionLoader = field(default_factory=ExtensionLoader)
    dialog_timeout: float = 60.0
    """The seconds that a question of an extension or of the agent waits for an answer, unless the question sets its own limit."""
    trust: FolderTrust | None = None
    """The folders that count as trusted; None trusts all."""
    rules: tuple[events.Rule, ...] = ()
    """The configured policy."""
    backoff: provider_errors.Backoff = field(default_factory=provider_errors.Backoff)
    stall_after: float = turns.STALL_AFTER
    """The seconds without output of the model after which the run reports that it is still waiting."""
    compact_at: float = 0.8
    """The part of the context window at which the conversation is compacted; 0 disables compaction."""
    randomness: Callable[[], float] = random.random
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
