"""Events as people read them, written on whatever screen it is given. Housekeeping that nobody waits for is passed over."""

from collections.abc import Mapping
from typing import Any, Protocol, assert_never

from switchtower.cli import dialog_lines, questions
from switchtower.cli.streams import ToolOutput
from switchtower.cli.usage import Usage
from switchtower.client import dialogs
from switchtower.client.frames import Event
from switchtower.protocols.push import messages

_LONGEST_VALUE = 200

OUTCOME_COLOURS = {"success": "green", "failed": "red", "cancelled": "yellow", "denied": "red"}

_COMMAND_TOOL = "sandbox_exec"

_PASSED_OVER = ("Checkpoint ", "Retry succeeded", "Retries failed", "Screen", "Keys typed by ", "Terminal resized")
"""How phases begin that say nothing new: an undo needs no announcement, a retry's end shows in what follows it, and a screen
is painted of what was put out before."""


class Screen(Protocol):
    def answer(self, text: str) -> None:
        """A piece of what the model says."""

    def end_answer(self) -> None: ...

    def withdraw_answer(self) -> None:
        """What the model has said of this message is void: it says it again from the start."""

    def piece(self, text: str) -> None:
        """A piece of what a tool puts out."""

    def line(self, text: str, colour: str | None = None) -> None: ...


class View:
    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._after_gap = False
        self._output = ToolOutput()
        self._usage: dict[str | None, Usage] = {}
        self._asked: dict[str, str] = {}
        """The titles of the dialogs that are open."""

    def show(self, event: Event) -> None:
        line = self._screen.line
        match event.payload:
            case messages.Token(text):
                if event.type == "assistant_token":
                    self._screen.answer(text)
            case messages.AssistantDone():
                self._screen.end_answer()
            case messages.SessionStarted(session_id, _, mode, provider):
                line(f"session {session_id} ({mode}, {provider})", "dim")
            case messages.SessionSnapshot():
                self._snapshot(event.payload)
            case messages.Status(_, phase, detail):
                if (ending := dialogs.ended(event.payload)) is not None:
                    self._dialog_ended(ending)
                    return
                self._status(event.run_id, phase, detail or "")
            case messages.ToolCall(_, tool, arguments):
                line(f"→ {tool} {brief(arguments)}".rstrip(), "cyan")
            case messages.ToolResult():
                self._tool_result(event.payload)
            case messages.ApprovalRequired():
                self.question(event.payload)
            case messages.ApprovalReceived(_, decision, by):
                line(f"{'approved' if decision == 'approve' else 'denied'} by {by}", "yellow")
            case messages.Warn():
                if (dialog := dialogs.opened(event.payload)) is not None:
                    self.dialog(dialog)
                    return
                self._warning(event.payload)
            case messages.Failure(code, message, _, detail):
                line(f"! {code}: {message}" + (f" ({_cut(detail)})" if detail else ""), "red")
            case messages.RunComplete():
                self._screen.end_answer()
                self._complete(event.payload)
            case None:
                pass  # push, Protocol Versioning: unknown event types are ignored
            case _:
                assert_never(event.payload)

    def end(self) -> None:
        """Nothing more comes: a message that has no end yet is shown as far as it got."""
        self._screen.end_answer()

    def question(self, approval: messages.ApprovalRequired) -> None:
        """In full: whoever decides must see all of what will run."""
        for text, colour in questions.lines(approval):
            self._screen.line(text, colour)

    def dialog(self, dialog: dialogs.Dialog) -> None:
        self._asked[dialog.dialog_id] = dialog.title
        self._screen.end_answer()
        for text, colour in dialog_lines.lines(dialog):
            self._screen.line(text, colour)

    def show_usage(self, run_id: str) -> None:
        """What the run took, if a model has said so."""
        if (usage := self._usage.pop(run_id, None)) is not None and usage.calls:
            self._screen.line(f"  {usage}", "dim")

    def _dialog_ended(self, ending: dialogs.Ending) -> None:
        title = self._asked.pop(ending.dialog_id, None)
        text, colour = dialog_lines.ending(ending.dialog_id if title is None else title, ending.how)
        self._screen.line(text, colour)

    def _status(self, run_id: str | None, phase: str, detail: str) -> None:
        if phase == "Tool output":
            self._output.came(detail)
            self._screen.piece(detail)
        elif phase.startswith(_PASSED_OVER) or (phase == "Usage" and self._usage.setdefault(run_id, Usage()).add(detail)):
            pass
        else:
            self._screen.line(f"· {phase}: {detail}" if detail else f"· {phase}", "dim")

    def _tool_result(self, result: messages.ToolResult) -> None:
        ending = _lines(result.text)
        if result.toolName == _COMMAND_TOOL or self._output.is_open:
            self._screen.piece(self._output.rest_of(result.text))
            if result.structuredError is not None:
                ending = result.structuredError.message
        elif result.isError:
            ending = _cut(" ".join(result.text.split()))
        self._screen.line(f"← {result.toolName} {result.durationMs} ms, {ending}", "red" if result.isError else "cyan")

    def _warning(self, warning: messages.Warn) -> None:
        self._after_gap = warning.code == "EVENT_GAP"
        match warning.code:
            case "MODEL_RETRY":
                self._screen.withdraw_answer()
                self._screen.line(f"! {warning.message}" + (f" ({_cut(warning.detail)})" if warning.detail else ""), "yellow")
            case "SESSION_CONFIGURED":
                self._screen.line(f"· Configured: {warning.detail or 'nothing'}", "dim")
            case code:
                self._screen.line(f"! {code}: {warning.message}", "yellow")

    def _snapshot(self, snapshot: messages.SessionSnapshot) -> None:
        run = f", run {snapshot.activeRunId}" if snapshot.activeRunId else ""
        self._screen.line(f"session is {snapshot.state}{run}", "dim")
        if self._after_gap:
            self._after_gap = False
            self._screen.answer(snapshot.lastAssistantText)
            self._screen.end_answer()
        if snapshot.pendingApproval is not None:
            self.question(snapshot.pendingApproval)

    def _complete(self, complete: messages.RunComplete) -> None:
        for result in complete.acceptance.results:
            verdict = "accepted" if result.passed else f"not accepted (exit code {result.exitCode})"
            self._screen.line(f"  {result.id}: {verdict}", "green" if result.passed else "red")
            if not result.passed and result.output.strip():
                self._screen.line(f"    {_cut(result.output.strip().splitlines()[-1])}", "dim")
        self.show_usage(complete.runId)
        summary = _cut(" ".join(complete.summary.split()))
        outcome = complete.outcome
        self._screen.line(f"= {outcome}: {summary}" if summary else f"= {outcome}", OUTCOME_COLOURS.get(outcome, "red"))


def brief(details: Mapping[str, Any]) -> str:
    """Names and values on one line."""
    return " ".join(f"{name}={_cut(questions.spelled(value))}" for name, value in details.items())


def _lines(text: str) -> str:
    count = len(text.splitlines())
    return "1 line" if count == 1 else f"{count} lines"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}… ({len(text)} characters)"
