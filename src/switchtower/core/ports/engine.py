"""The engine port: who does a run's work. An engine emits events, asks for approvals and can be cancelled.

An engine is started because a `RunStarted` was committed. It speaks only through its `Desk`: what it emits enters the
session's lane and is journalled before anyone sees it. Cancelling is asyncio's own: the task that runs `Engine.run` is
cancelled, and the engine cleans up (kills processes, closes streams) before it lets go.
"""

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from switchtower.core import events
from switchtower.core.session import Timeline

T = TypeVar("T")

FlowEvent = events.ToolCalled | events.ToolFinished | events.ApprovalDecided | events.ApprovalExpired


class Message(Struct, frozen=True):
    """A finished piece of the conversation: `user`, `assistant` or `tool`."""

    role: str
    text: str
    calls: tuple[events.ToolRequest, ...] = ()
    call_id: str | None = None
    tool: str | None = None
    is_error: bool = False
    thinking: str = ""
    carry: dict[str, Any] | None = None
    """See `events.MessageCompleted`."""
    images: tuple[events.Image, ...] = ()
    at_ms: int = 0
    """When it was said."""


class Task(Struct, frozen=True):
    """One run, as an engine needs to know it. All of it comes from the journal, so it is the same after a restart."""

    session_id: str
    run_id: str
    workspace: events.Workspace
    provider: str
    model: str | None
    sandbox: str
    headless: bool
    messages: tuple[Message, ...]
    """The conversation so far; it ends with this run's user message, or with what this run had done before a restart."""
    open_calls: tuple[events.ToolRequest, ...] = ()
    """Calls of the last assistant message that have no result yet: where a run goes on after a restart."""
    called: frozenset[str] = frozenset()
    """Ids of those open calls whose `ToolCalled` is already journalled."""
    pending_approval: events.Approval | None = None
    """The question that was open when the daemon stopped; its answer comes from `Desk.ask` with the same approval."""
    purpose: events.Purpose = events.Purpose.WORK
    instructions: str = ""
    """What a run that is not work was told: how to summarise, for instance."""
    force: bool = False
    policy: str = "ask"
    rules: tuple[events.Rule, ...] = ()
    """Made by decisions in this session."""
    run_rules: tuple[events.Rule, ...] = ()
    """Sent with the message that started this run."""
    thinking: str | None = None
    budget: events.Budget = events.Budget()
    started_at_ms: int = 0
    turns_taken: int = 0
    """By this run, before a restart."""
    tokens_used: int = 0
    """By this run, before a restart."""
    cost: float = 0.0
    """Of this run, before a restart."""
    context_tokens: int = 0
    """What the last call of a model took in and put out, in this session."""
    checkpoint: str | None = None
    """The tree that this run has already kept of the workspace, before a restart."""
    timeline: Timeline = Timeline()
    auto_compact: bool = True
    auto_retry: bool = True
    preset: events.Preset | None = None
    program: events.Program | None = None
    """As it was asked for, before anything of it was hidden: known to its first daemon only."""
    flow: events.Flow | None = None
    """As it was asked for; after a restart, as the journal has it."""
    steps: tuple[FlowEvent, ...] = ()
    """What a flow's run had done before a restart, and what was decided in it."""


class ApprovalQuestion(Struct, frozen=True):
    """What an engine wants approved. `subject` is exactly what will run; the approval is bound to its hash."""

    call_id: str
    kind: str
    title: str
    summary: str
    details: dict[str, object]
    subject: str
    rule: events.Rule | None = None
    """What "always for this session" would allow."""
    approval_id: str | None = None
    """When whoever asks wants to know it beforehand."""
    options: tuple[str, ...] = ("approve", "deny")
    """Without `approve`, approving is refused; `details` say why under `events.CANNOT_APPROVE`."""


class TypedText(Struct, frozen=True):
    """What somebody sent to a program, unhidden."""

    text: str


class ResizedScreen(Struct, frozen=True):
    cols: int
    rows: int


class ApprovalAnswer(Struct, frozen=True):
    """`verdict` is None when the question expired."""

    verdict: events.Verdict | None
    comment: str | None = None
    rule: events.Rule | None = None
    """The rule that the decision made."""
    by: events.Actor | None = None


class DialogAnswer(Struct, frozen=True):
    """`response` is None when nobody answered; `reason` says why: `dismissed`, `expired`, or what ended the run."""

    response: dict[str, Any] | None
    reason: str = ""


class RunResult(Struct, frozen=True):
    """How a run's work ended. Acceptance is checked afterwards, and only after a success."""

    outcome: events.Outcome
    summary: str
    exit_code: int | None = None
    """A program's own."""


class StepCancelled(Exception):
    """Somebody had enough of this step; the run goes on without it."""


class RunContext(Protocol):
    """What the runtime offers to an engine during one run."""

    async def emit(self, event: events.AnyEvent) -> None:
        """Hands one event over. Waits only when too many are uncommitted, so an engine cannot outrun the disk."""
        ...

    async def flush(self) -> None:
        """Returns when everything emitted so far is committed."""
        ...

    async def request_approval(self, question: ApprovalQuestion) -> ApprovalAnswer:
        """Requests an approval and waits for a decision or the expiry. When the run already has this very question
        pending (same call, same subject), it waits for that one instead of asking twice."""
        ...

    async def open_dialog(self, dialog: events.Dialog) -> DialogAnswer:
        """Opens a dialog and waits for the first answer, or for its end without one. Its id is given to it."""
        ...

    async def run_step(self, step: str, work: Awaitable[T]) -> T:
        """Does the work, unless somebody has enough of this step of the run: then it is cancelled and `StepStopped` raised."""
        ...

    def take_steering_messages(self) -> tuple[events.MessageQueued, ...]:
        """The messages that wait to be told to the model, each handed out once. Emit a `MessageDelivered` for each."""
        ...

    async def withdraw_approval(self, approval_id: str, reason: str) -> None:
        """The question needs no decision any more. Whoever waits in `ask` is answered as if it had expired."""
        ...

    async def next_terminal_input(self) -> TypedText | ResizedScreen:
        """What comes to the terminal next, in the order it was accepted. Waits for it."""
        ...

    def report_exit(self, exit_code: int) -> None:
        """How the run's program ended, told also when the run is cancelled and returns no result."""
        ...

    async def wait_for_force(self) -> None:
        """Returns when somebody wants the run to end without ceremony."""
        ...

    def release_output(self, call_id: str) -> None:
        """Nothing more comes for now: lets go of output that was held back, unless a secret has begun in it."""
        ...

    def redact(self, text: str) -> str:
        """The text without secrets. For text that is cut before it is emitted: the rest of a secret is not recognised."""
        ...

    def mint(self, prefix: str) -> str:
        """A fresh id."""
        ...

    def is_shutting_down(self) -> bool:
        """Whether a cancelled run is cancelled only because the daemon stops. One that goes on afterwards takes nothing back."""
        ...


class Engine(Protocol):
    async def run(self, task: Task, context: RunContext) -> RunResult: ...


def answered_call_ids(messages: Sequence[Message]) -> set[str]:
    """The ids of calls that have been answered."""
    return {message.call_id for message in messages if message.role == "tool" and message.call_id}


def convert_imported(event: events.MessageImported) -> Message:
    return Message(
        role=event.role,
        text=event.text,
        calls=event.calls,
        call_id=event.call_id,
        tool=event.tool,
        is_error=event.is_error,
        thinking=event.thinking,
        images=event.images,
        at_ms=event.at_ms,
    )


def convert_shell_result(started: events.ShellStarted, finished: events.ShellFinished) -> Message:
    """What the model is told of a command that a person ran."""
    how = "was cancelled" if finished.cancelled else f"ended with exit code {finished.exit_code}"
    text = f"I ran this command myself:\n\n{started.command}\n\nIt {how}. Its output:\n\n{finished.text}"
    return Message(role="user", text=text)


SUMMARY_HEADING = "What has happened so far, in summary:"


def compact_messages(messages: Sequence[Message], summary: str, kept: int) -> list[Message]:
    """The conversation with a summary in place of its beginning. The last `kept` messages of user and assistant stay, each
    with the tool results behind it; results that a restart made up are not counted, so that everybody counts the same."""
    first_kept = len(messages)
    for index in range(len(messages) - 1, -1, -1):
        if kept <= 0:
            break
        if messages[index].role != "tool":
            first_kept = index
            kept -= 1
    return [Message(role="user", text=f"{SUMMARY_HEADING}\n\n{summary}"), *messages[first_kept:]]
