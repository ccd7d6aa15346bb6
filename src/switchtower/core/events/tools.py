"""Work in a workspace: tool calls, users' own commands, remote calls, and the checkpoints from which changes can be undone.

The events of a program in a terminal."""

from typing import Any, ClassVar

from switchtower.core.events.values import Actor, Event, ToolError


class TerminalTyped(Event, frozen=True):
    """A client sent the program a text. `text` is the part of it that can be shown; `sha256` is the hash of all of it."""

    kind: ClassVar[str] = "terminal.typed"
    input_id: str
    text: str
    sha256: str
    by: Actor


class TerminalKeysTyped(Event, frozen=True):
    """A client typed at the terminal, key by key: only the number of characters is stored."""

    kind: ClassVar[str] = "terminal.keys"
    count: int
    by: Actor


class TerminalResized(Event, frozen=True):
    kind: ClassVar[str] = "terminal.resized"
    cols: int
    rows: int
    by: Actor


class TerminalEchoChanged(Event, frozen=True):
    """The terminal turned echo on or off. While it is off, the program usually asks for a password."""

    kind: ClassVar[str] = "terminal.echoed"
    on: bool


class PromptShown(Event, frozen=True):
    """The program waits for input. `reason` is `permission`, `choice`, `prompt` or `unknown`."""

    kind: ClassVar[str] = "terminal.prompt"
    reason: str
    prompt: str = ""
    approval_id: str | None = None
    """The approval that was made of it, when it is a yes-or-no question."""


class PromptCleared(Event, frozen=True):
    """The program no longer waits for input."""

    kind: ClassVar[str] = "terminal.prompt_gone"


class ScreenCaptured(Event, frozen=True):
    """The whole screen as a text that paints it. Together with the output since, it is all that a late client needs."""

    kind: ClassVar[str] = "terminal.screen"
    prunable: ClassVar[bool] = True
    text: str
    cols: int
    rows: int


class ToolCalled(Event, frozen=True):
    kind: ClassVar[str] = "tool.called"
    call_id: str
    tool: str
    args: dict[str, Any]


class ToolProgressed(Event, frozen=True):
    """A piece of a tool's output while it works; its result follows in one piece at the end."""

    kind: ClassVar[str] = "tool.progressed"
    prunable: ClassVar[bool] = True
    call_id: str
    text: str


class ToolFinished(Event, frozen=True):
    kind: ClassVar[str] = "tool.finished"
    call_id: str
    tool: str
    duration_ms: int
    text: str
    is_error: bool = False
    error: ToolError | None = None
    result: dict[str, Any] | None = None
    """The CallToolResult of an MCP tool, as its server sent it."""
    outputs: dict[str, Any] | None = None
    """The outputs of a flow's step, for the steps after it."""


class ShellStarted(Event, frozen=True):
    """A user runs their own command in the workspace."""

    kind: ClassVar[str] = "shell.started"
    shell_id: str
    command: str
    by: Actor
    told: bool = True
    """True when the model gets the command and its output with the next message."""


class ShellCancelRequested(Event, frozen=True):
    kind: ClassVar[str] = "shell.cancel_requested"
    shell_id: str
    by: Actor


class ShellFinished(Event, frozen=True):
    kind: ClassVar[str] = "shell.finished"
    shell_id: str
    exit_code: int | None
    """None when the command did not get that far."""
    text: str
    cancelled: bool = False


class RemoteCallStarted(Event, frozen=True):
    """A remote client calls a tool in the workspace: reads a file, or shows a diff."""

    kind: ClassVar[str] = "errand.started"
    errand_id: str
    tool: str
    args: dict[str, Any]
    by: Actor


class RemoteCallFinished(Event, frozen=True):
    """`result` is bounded: the client that made the call got the whole result."""

    kind: ClassVar[str] = "errand.finished"
    errand_id: str
    tool: str
    by: Actor
    ok: bool
    duration_ms: int
    result: dict[str, Any] | None = None
    error: str | None = None


class CheckpointTaken(Event, frozen=True):
    """The workspace's files as they were `before` the run's first change or `after` its last. `tree` names the git object."""

    kind: ClassVar[str] = "workspace.checkpoint"
    when: str
    tree: str
    of: str | None = None
    """The run that it belongs to, when that is not the one that took it: a crashed run's end is stored when it is undone."""


class WorkspaceRestored(Event, frozen=True):
    """A run's changes were undone or redone: `direction` is `undo` or `redo`."""

    kind: ClassVar[str] = "workspace.restored"
    direction: str
    run_id: str
    after: str
    """The tree that counted as the run's end."""
    files: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Files that were skipped because they have been changed since."""
    failed: tuple[str, ...] = ()
    """Files that could not be written."""
