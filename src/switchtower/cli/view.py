"""Events as people read them, written on whatever screen it is given. Housekeeping that nobody waits for is passed over."""

from collections.abc import Mapping
from typing import Any, Protocol, assert_never

from switchtower.cli import dialog_lines, questions
from switchtower.cli.streams import StreamedToolOutput
from switchtower.cli.usage import RunUsage
from switchtower.client import dialogs
from switchtower.client.frames import PushEvent
from switchtower.protocols.push import messages

_MAX_VALUE_CHARS = 200

OUTCOME_COLOURS = {"success": "green", "failed": "red", "cancelled": "yellow", "denied": "red"}

_COMMAND_TOOL = "sandbox_exec"

_HIDDEN_PHASES = ("Checkpoint ", "Retry succeeded", "Retries failed", "Screen", "Keys typed by ", "Terminal resized")
"""How phases begin that say nothing new: an undo needs no announcement, a retry's end shows in what follows it, and a screen
is painted of what was put out before."""


class EventOutput(Protocol):
    def write_answer(self, text: str) -> None:
        """A piece of what the model says."""

    def end_answer(self) -> None: ...

    def withdraw_answer(self) -> None:
        """What the model has said of this message is void: it says it again from the start."""

    def write_piece(self, text: str) -> None:
        """A piece of what a tool puts out."""

    def write_line(self, text: str, colour: str | None = None) -> None: ...


class EventPrinter:
    def __init__(self, target: EventOutput) -> None:
        self._target = target
        self._after_gap = False
        self._output = StreamedToolOutput()
        self._usage: dict[str | None, RunUsage] = {}
        self._asked: dict[str, str] = {}
        """The titles of the dialogs that are open."""

    def print_event(self, event: PushEvent) -> None:
        line = self._target.write_line
        match event.payload:
            case messages.Token(text):
                if event.type == "assistant_token":
                    self._target.write_answer(text)
            case messages.AssistantDone():
                self._target.end_answer()
            case messages.SessionStarted(session_id, _, mode, provider):
                line(f"session {session_id} ({mode}, {provider})", "dim")
            case messages.SessionSnapshot():
                self._print_snapshot(event.payload)
            case messages.Status(_, phase, detail):
                if (ending := dialogs.decode_dialog_end(event.payload)) is not None:
                    self._print_dialog_end(ending)
                    return
                self._print_status(event.run_id, phase, detail or "")
            case messages.ToolCall(_, tool, arguments):
                line(f"→ {tool} {format_arguments(arguments)}".rstrip(), "cyan")
            case messages.ToolResult():
                self._print_tool_result(event.payload)
            case messages.ApprovalRequired():
                self.print_approval(event.payload)
            case messages.ApprovalReceived(_, decision, by):
                line(f"{'approved' if decision == 'approve' else 'denied'} by {by}", "yellow")
            case messages.Warn():
                if (dialog := dialogs.decode_dialog_opened(event.payload)) is not None:
                    self.print_dialog(dialog)
                    return
                self._print_warning(event.payload)
            case messages.Failure(code, message, _, detail):
                line(f"! {code}: {message}" + (f" ({_cut_value(detail)})" if detail else ""), "red")
            case messages.RunComplete():
                self._target.end_answer()
                self._print_run_end(event.payload)
            case None:
                pass  # push, Protocol Versioning: unknown event types are ignored
            case _:
                assert_never(event.payload)

    def end(self) -> None:
        """Nothing more comes: a message that has no end yet is shown as far as it got."""
        self._target.end_answer()

    def print_approval(self, approval: messages.ApprovalRequired) -> None:
        """In full: whoever decides must see all of what will run."""
        for text, colour in questions.format_approval(approval):
            self._target.write_line(text, colour)

    def print_dialog(self, dialog: dialogs.PushDialog) -> None:
        self._asked[dialog.dialog_id] = dialog.title
        self._target.end_answer()
        for text, colour in dialog_lines.format_dialog(dialog):
            self._target.write_line(text, colour)

    def print_usage(self, run_id: str) -> None:
        """What the run took, if a model has said so."""
        if (usage := self._usage.pop(run_id, None)) is not None and usage.calls:
            self._target.write_line(f"  {usage}", "dim")

    def _print_dialog_end(self, ending: dialogs.DialogEnd) -> None:
        title = self._asked.pop(ending.dialog_id, None)
        text, colour = dialog_lines.format_dialog_end(ending.dialog_id if title is None else title, ending.how)
        self._target.write_line(text, colour)

    def _print_status(self, run_id: str | None, phase: str, detail: str) -> None:
        if phase == "Tool output":
            self._output.append(detail)
            self._target.write_piece(detail)
        elif phase.startswith(_HIDDEN_PHASES) or (
            phase == "Usage" and self._usage.setdefault(run_id, RunUsage()).add_report(detail)
        ):
            pass
        else:
            self._target.write_line(f"· {phase}: {detail}" if detail else f"· {phase}", "dim")

    def _print_tool_result(self, result: messages.ToolResult) -> None:
        ending = _end_with_newline(result.text)
        if result.toolName == _COMMAND_TOOL or self._output.is_open:
            self._target.write_piece(self._output.take_rest(result.text))
            if result.structuredError is not None:
                ending = result.structuredError.message
        elif result.isError:
            ending = _cut_value(" ".join(result.text.split()))
        self._target.write_line(f"← {result.toolName} {result.durationMs} ms, {ending}", "red" if result.isError else "cyan")

    def _print_warning(self, warning: messages.Warn) -> None:
        self._after_gap = warning.code == "EVENT_GAP"
        match warning.code:
            case "MODEL_RETRY":
                self._target.withdraw_answer()
                self._target.write_line(
                    f"! {warning.message}" + (f" ({_cut_value(warning.detail)})" if warning.detail else ""), "yellow"
                )
            case "SESSION_CONFIGURED":
                self._target.write_line(f"· Configured: {warning.detail or 'nothing'}", "dim")
            case code:
                self._target.write_line(f"! {code}: {warning.message}", "yellow")

    def _print_snapshot(self, snapshot: messages.SessionSnapshot) -> None:
        run = f", run {snapshot.activeRunId}" if snapshot.activeRunId else ""
        self._target.write_line(f"session is {snapshot.state}{run}", "dim")
        if self._after_gap:
            self._after_gap = False
            self._target.write_answer(snapshot.lastAssistantText)
            self._target.end_answer()
        if snapshot.pendingApproval is not None:
            self.print_approval(snapshot.pendingApproval)

    def _print_run_end(self, complete: messages.RunComplete) -> None:
        for result in complete.acceptance.results:
            verdict = "accepted" if result.passed else f"not accepted (exit code {result.exitCode})"
            self._target.write_line(f"  {result.id}: {verdict}", "green" if result.passed else "red")
            if not result.passed and result.output.strip():
                self._target.write_line(f"    {_cut_value(result.output.strip().splitlines()[-1])}", "dim")
        self.print_usage(complete.runId)
        summary = _cut_value(" ".join(complete.summary.split()))
        outcome = complete.outcome
        self._target.write_line(f"= {outcome}: {summary}" if summary else f"= {outcome}", OUTCOME_COLOURS.get(outcome, "red"))


def format_arguments(details: Mapping[str, Any]) -> str:
    """Names and values on one line."""
    return " ".join(f"{name}={_cut_value(questions.format_detail_value(value))}" for name, value in details.items())


def _end_with_newline(text: str) -> str:
    count = len(text.splitlines())
    return "1 line" if count == 1 else f"{count} lines"


def _cut_value(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}… ({len(text)} characters)"
