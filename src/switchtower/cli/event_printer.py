"""Prints events for users: the answer goes to stdout and the rest to stderr, or everything goes to stdout.

Housekeeping events are skipped. A tool's streamed output is remembered, so that only the rest of its result is printed at the
end: the daemon leaves the last part to the result, and skips output that arrives too fast.
"""

from collections.abc import Mapping
from typing import Any, Protocol, assert_never

from switchtower.cli import console, output
from switchtower.client import frames
from switchtower.client.frames import PushEvent
from switchtower.presentation import approval_text, dialog_form
from switchtower.presentation.safe_text import strip_terminal_codes
from switchtower.presentation.session_details import RunUsage
from switchtower.protocols.push import messages

_MAX_VALUE_CHARS = 200

OUTCOME_COLOURS = {"success": "green", "failed": "red", "cancelled": "yellow", "denied": "red"}

_COMMAND_TOOL = "sandbox_exec"

_HIDDEN_PHASES = ("Checkpoint ", "Retry succeeded", "Retries failed", "Screen", "Keys typed by ", "Terminal resized")
"""Prefixes of phases that add no information: an undo needs no announcement, the events after a retry show its end, and a screen
repeats earlier output."""


class EventOutput(Protocol):
    def write_answer(self, text: str) -> None:
        """Writes a piece of the model's answer."""

    def end_answer(self) -> None: ...

    def withdraw_answer(self) -> None:
        """Discards the current message, which the model sends again from the start."""

    def write_piece(self, text: str) -> None:
        """Writes a piece of a tool's output."""

    def write_line(self, text: str, colour: str | None = None) -> None: ...


class EventPrinter:
    def __init__(self, target: EventOutput) -> None:
        self._target = target
        self._after_gap = False
        self._output = StreamedToolOutput()
        self._usage: dict[str | None, RunUsage] = {}
        self._asked: dict[str, str] = {}
        """The titles of the open dialogs."""

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
                if (ending := frames.decode_dialog_end(event.payload)) is not None:
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
                if (dialog := frames.decode_dialog_opened(event.payload)) is not None:
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
        """Prints the rest of an incomplete message, because no further event arrives."""
        self._target.end_answer()

    def print_approval(self, approval: messages.ApprovalRequired) -> None:
        """Prints the approval in full: the approver must see everything that will run."""
        for text, colour in approval_text.format_approval(approval):
            self._target.write_line(text, colour)

    def print_dialog(self, dialog: frames.PushDialog) -> None:
        self._asked[dialog.dialog_id] = dialog.title
        self._target.end_answer()
        for text, colour in dialog_form.format_dialog(dialog):
            self._target.write_line(text, colour)

    def print_usage(self, run_id: str) -> None:
        """Prints the usage of a run if a model reported it."""
        if (usage := self._usage.pop(run_id, None)) is not None and usage.calls:
            self._target.write_line(f"  {usage}", "dim")

    def _print_dialog_end(self, ending: frames.DialogEnd) -> None:
        title = self._asked.pop(ending.dialog_id, None)
        text, colour = dialog_form.format_dialog_end(ending.dialog_id if title is None else title, ending.how)
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
    """Formats names and values on one line."""
    return " ".join(f"{name}={_cut_value(approval_text.format_detail_value(value))}" for name, value in details.items())


def _end_with_newline(text: str) -> str:
    count = len(text.splitlines())
    return "1 line" if count == 1 else f"{count} lines"


def _cut_value(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}… ({len(text)} characters)"


MAX_LINES = 40
"""The maximum number of lines of output that was not streamed: its end matters most, and the result contains all of it."""
_ANCHOR = 200


class StreamedToolOutput:
    def __init__(self) -> None:
        self._seen = ""

    @property
    def is_open(self) -> bool:
        return bool(self._seen)

    def append(self, text: str) -> None:
        self._seen += text

    def take_rest(self, result: str) -> str:
        """Returns the part of the result that was not streamed, with a final newline, and starts over for the next tool."""
        seen, self._seen = self._seen, ""
        rest = _take_last_lines(_cut_seen(seen, result))
        return rest if rest.endswith("\n") or not rest else f"{rest}\n"


def _cut_seen(seen: str, result: str) -> str:
    if result.startswith(seen):
        return result[len(seen) :]
    # Some output was skipped, so find the last streamed part in the result.
    anchor = seen[-_ANCHOR:]
    where = result.rfind(anchor)
    return result[where + len(anchor) :] if where >= 0 else f"\n{result}"


def _take_last_lines(text: str) -> str:
    lines = text.splitlines(keepends=True)
    if len(lines) <= MAX_LINES:
        return text
    return f"[… {len(lines) - MAX_LINES} lines …]\n" + "".join(lines[-MAX_LINES:])


WITHDRAWN_NOTICE = "(the model call failed: the text above is void)"


class ProgressOutput:
    """Writes the model's text to stdout, or nowhere, and everything else to stderr.

    A terminal shows a message while it is streamed. A pipe or a file cannot take back a withdrawn message, so there a message is
    written when it is complete.
    """

    def __init__(self, *, answers: bool = True) -> None:
        self._answers = answers
        self._streams = output.is_terminal()
        self._message: list[str] = []

    def write_answer(self, text: str) -> None:
        if not self._answers:
            return
        self._message.append(text)
        if self._streams:
            console.end_line()
            output.write_answer(text)

    def end_answer(self) -> None:
        if self._message and not self._streams:
            output.write_answer("".join(self._message))
        self._message.clear()
        output.end_answer()

    def withdraw_answer(self) -> None:
        void = "".join(self._message).strip()
        self._message.clear()
        output.end_answer()
        if void and self._streams:
            console.print_line(WITHDRAWN_NOTICE, "dim")

    def write_piece(self, text: str) -> None:
        console.print_piece(strip_terminal_codes(text), "dim")

    def write_line(self, text: str, colour: str | None = None) -> None:
        console.print_line(text, colour)


class TranscriptOutput:
    """Writes everything to stdout, in the order in which it happened."""

    def __init__(self) -> None:
        self._in_piece = False
        self._in_answer = False

    def write_answer(self, text: str) -> None:
        self._end_piece()
        self._in_answer = True
        output.write_answer(text)

    def end_answer(self) -> None:
        self._in_answer = False
        output.end_answer()

    def withdraw_answer(self) -> None:
        void, self._in_answer = self._in_answer, False
        if void:
            self.write_line(WITHDRAWN_NOTICE, "dim")

    def write_piece(self, text: str) -> None:
        if not self._in_piece:
            output.end_answer()
            self._in_piece = True
        output.write_piece(console.escape_unprintable(strip_terminal_codes(text)), _paint_dim)

    def write_line(self, text: str, colour: str | None = None) -> None:
        self._end_piece()
        output.end_answer()
        text = console.escape_unprintable(text)
        output.write_line(console.paint(text, colour) if colour and console.supports_colour(1) else text)

    def _end_piece(self) -> None:
        if self._in_piece:
            self._in_piece = False
            output.end_answer()


def _paint_dim(text: str) -> str:
    return console.paint(text, "dim") if console.supports_colour(1) else text
