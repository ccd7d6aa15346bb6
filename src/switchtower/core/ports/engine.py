"""The engine port: an engine does the work of a run. It emits events, requests approvals and can be cancelled.

An engine is started because a `RunStarted` was committed. Its only output is its `RunContext`: what it emits is queued in the
session's lane and is journalled before any client sees it. Cancellation is asyncio's own: the task that runs `Engine.run` is
cancelled, and the engine cleans up (kills processes, closes streams) before it returns.
"""

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from switchtower.core import events
from switchtower.core.session import Timeline

T = TypeVar("T")

FlowEvent = events.ToolCalled | events.ToolFinished | events.ApprovalDecided | events.ApprovalExpired


class Message(Struct, frozen=True):
    """A finished piece of the conversation. `role` is `user`, `assistant` or `tool`."""

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
    """The time at which it was sent."""


class Task(Struct, frozen=True):
    """One run as an engine needs to know it. All of it is read from the journal, so it is the same after a restart."""

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
    """Calls of the last assistant message that have no result yet: a resumed run continues with them."""
    called: frozenset[str] = frozenset()
    """Ids of those open calls whose `ToolCalled` is already journalled."""
    pending_approval: events.Approval | None = None
    """The approval that was open when the daemon stopped; `RunContext.request_approval` returns its answer for the same
    question.
    """
    purpose: events.Purpose = events.Purpose.WORK
    instructions: str = ""
    """The instructions of a run that is not work, for instance how to summarise."""
    force: bool = False
    policy: str = "ask"
    rules: tuple[events.Rule, ...] = ()
    """The rules that decisions in this session have made."""
    run_rules: tuple[events.Rule, ...] = ()
    """The rules that were sent with the message that started this run."""
    thinking: str | None = None
    budget: events.Budget = events.Budget()
    started_at_ms: int = 0
    turns_taken: int = 0
    """Turns of this run before a restart."""
    tokens_used: int = 0
    """Tokens of this run before a restart."""
    cost: float = 0.0
    """The cost of this run before a restart."""
    context_tokens: int = 0
    """The input and output tokens of the last model call in this session."""
    checkpoint: str | None = None
    """The tree that this run had stored of the workspace before a restart."""
    timeline: Timeline = Timeline()
    auto_compact: bool = True
    auto_retry: bool = True
    preset: events.Preset | None = None
    program: events.Program | None = None
    """The program as it was requested, before redaction. Only the daemon that started it knows it."""
    flow: events.Flow | None = None
    """The flow as it was requested; after a restart, as the journal has it."""
    steps: tuple[FlowEvent, ...] = ()
    """The steps that a flow's run had done before a restart, and the decisions in it."""


class ApprovalQuestion(Struct, frozen=True):
    """An action that an engine wants approved. `subject` is exactly what will run; the approval is bound to its hash."""

    call_id: str
    kind: str
    title: str
    summary: str
    details: dict[str, object]
    subject: str
    rule: events.Rule | None = None
    """The rule that "always for this session" would add."""
    approval_id: str | None = None
    """The id of the approval, when the engine has to know it beforehand."""
    options: tuple[str, ...] = ("approve", "deny")
    """Without `approve`, an approval is refused; `details` has the reason under `events.CANNOT_APPROVE`."""


class TypedText(Struct, frozen=True):
    """Text that a client sent to a program, not redacted."""

    text: str


class ResizedScreen(Struct, frozen=True):
    cols: int
    rows: int


class ApprovalAnswer(Struct, frozen=True):
    """The decision on an approval. `verdict` is None when the approval expired."""

    verdict: events.Verdict | None
    comment: str | None = None
    rule: events.Rule | None = None
    """The rule that the decision made."""
    by: events.Actor | None = None


class DialogAnswer(Struct, frozen=True):
    """The answer to a dialog. `response` is None when it ended without one; `reason` is then `dismissed`, `expired`, or what
    ended the run.
    """

    response: dict[str, Any] | None
    reason: str = ""


class RunResult(Struct, frozen=True):
    """The result of a run's work. Acceptance is checked afterwards, and only after a success."""

    outcome: events.Outcome
    summary: str
    exit_code: int | None = None
    """The exit code of the program, when the run was one."""


class StepCancelled(Exception):
    """A user has stopped this step; the run continues without it."""


class RunContext(Protocol):
    """The runtime's interface to an engine during one run."""

    async def emit(self, event: events.AnyEvent) -> None:
        """Queues one event. Waits only when too many are uncommitted, so an engine cannot outrun the disk."""
        ...

    async def flush(self) -> None:
        """Returns when everything emitted so far is committed."""
        ...

    async def request_approval(self, question: ApprovalQuestion) -> ApprovalAnswer:
        """Requests an approval and waits for a decision or the expiry. When the run already has this very question pending
        (same call, same subject), it waits for that one instead of requesting a second one.
        """
        ...

    async def open_dialog(self, dialog: events.Dialog) -> DialogAnswer:
        """Opens a dialog and waits for the first answer, or for its end without one. The runtime assigns its id."""
        ...

    async def run_step(self, step: str, work: Awaitable[T]) -> T:
        """Awaits the work. When a user stops this step of the run, the work is cancelled and `StepCancelled` is raised."""
        ...

    def take_steering_messages(self) -> tuple[events.MessageQueued, ...]:
        """Returns the messages that wait to be sent to the model, each one once. The engine emits a `MessageDelivered` for
        each.
        """
        ...

    async def withdraw_approval(self, approval_id: str, reason: str) -> None:
        """Withdraws an approval that no longer needs a decision. `request_approval` then returns as if it had expired."""
        ...

    async def next_terminal_input(self) -> TypedText | ResizedScreen:
        """Waits for the next input of the terminal, in the order in which it was accepted."""
        ...

    def report_exit(self, exit_code: int) -> None:
        """Reports the exit code of the run's program, also when the run is cancelled and returns no result."""
        ...

    async def wait_for_force(self) -> None:
        """Returns when a user wants the run to be killed rather than asked to end."""
        ...

    def release_output(self, call_id: str) -> None:
        """Releases output that was held back, because no more follows for now, unless a secret has started in it."""
        ...

    def redact(self, text: str) -> str:
        """Returns the text without secrets. Call it for text that is cut before it is emitted: the rest of a secret is not
        recognised.
        """
        ...

    def mint(self, prefix: str) -> str:
        """Returns a new id."""
        ...

    def is_shutting_down(self) -> bool:
        """Returns whether a cancelled run is cancelled only because the daemon stops. A run that resumes after the restart must
        then withdraw or cancel nothing.
        """
        ...


class Engine(Protocol):
    async def run(self, task: Task, context: RunContext) -> RunResult: ...


def answered_call_ids(messages: Sequence[Message]) -> set[str]:
    """The ids of the calls that have a result."""
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
    """Returns the message in which the model gets a command that a user ran."""
    how = "was cancelled" if finished.cancelled else f"ended with exit code {finished.exit_code}"
    text = f"I ran this command myself:\n\n{started.command}\n\nIt {how}. Its output:\n\n{finished.text}"
    return Message(role="user", text=text)


SUMMARY_HEADING = "What has happened so far, in summary:"


def compact_messages(messages: Sequence[Message], summary: str, kept: int) -> list[Message]:
    """Returns the conversation with a summary in place of its beginning. The last `kept` messages of user and assistant stay,
    each with the tool results behind it; results that a restart made up are not counted, so that every reader counts the same.
    """
    first_kept = len(messages)
    for index in range(len(messages) - 1, -1, -1):
        if kept <= 0:
            break
        if messages[index].role != "tool":
            first_kept = index
            kept -= 1
    return [Message(role="user", text=f"{SUMMARY_HEADING}\n\n{summary}"), *messages[first_kept:]]
