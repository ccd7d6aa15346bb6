"""Events as people read them. The model's text goes to one sink, everything else as lines to another; writes nothing itself."""

import json
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from switchtower.client.frames import Event
from switchtower.protocols.push import messages

_LONGEST_VALUE = 200

Line = Callable[[str, str | None], None]
"""Takes a line and its colour."""

OUTCOME_COLOURS = {"success": "green", "failed": "red", "cancelled": "yellow", "denied": "red"}


class View:
    def __init__(self, *, answer: Callable[[str], None], end_answer: Callable[[], None], line: Line) -> None:
        self._answer = answer
        self._end_answer = end_answer
        self._line = line
        self._after_gap = False

    def show(self, event: Event) -> None:
        match event.payload:
            case messages.Token(text):
                if event.type == "assistant_token":
                    self._answer(text)
            case messages.AssistantDone():
                self._end_answer()
            case messages.SessionStarted(session_id, _, mode, provider):
                self._line(f"session {session_id} ({mode}, {provider})", "dim")
            case messages.SessionSnapshot():
                self._snapshot(event.payload)
            case messages.Status(_, phase, detail):
                self._line(f"· {phase}: {detail}" if detail else f"· {phase}", "dim")
            case messages.ToolCall(_, tool, arguments):
                self._line(f"→ {tool} {brief(arguments)}", "cyan")
            case messages.ToolResult(_, tool, duration_ms, is_error, text):
                ending = _cut(" ".join(text.split())) if is_error else _lines(text)
                self._line(f"← {tool} {duration_ms} ms, {ending}", "red" if is_error else "cyan")
            case messages.ApprovalRequired():
                self.question(event.payload)
            case messages.ApprovalReceived(_, decision, by):
                self._line(f"{'approved' if decision == 'approve' else 'denied'} by {by}", "yellow")
            case messages.Warn(code, message) | messages.Failure(code, message):
                self._after_gap = code == "EVENT_GAP"
                self._line(f"! {code}: {message}", "yellow" if event.type == "warning" else "red")
            case messages.RunComplete():
                self._end_answer()
                self._complete(event.payload)
            case None:
                pass  # push, Protocol Versioning: unknown event types are ignored
            case _:
                assert_never(event.payload)

    def question(self, approval: messages.ApprovalRequired) -> None:
        """In full: whoever decides must see all of what will run."""
        self._line(f"? {approval.title}: {approval.summary}", "yellow")
        for name, value in approval.details.items():
            self._line(f"  {name}: {_spelled(value)}", "yellow")

    def _snapshot(self, snapshot: messages.SessionSnapshot) -> None:
        run = f", run {snapshot.activeRunId}" if snapshot.activeRunId else ""
        self._line(f"session is {snapshot.state}{run}", "dim")
        if self._after_gap:
            self._after_gap = False
            self._answer(snapshot.lastAssistantText)
            self._end_answer()
        if snapshot.pendingApproval is not None:
            self.question(snapshot.pendingApproval)

    def _complete(self, complete: messages.RunComplete) -> None:
        for result in complete.acceptance.results:
            verdict = "accepted" if result.passed else f"not accepted (exit code {result.exitCode})"
            self._line(f"  {result.id}: {verdict}", "green" if result.passed else "red")
            if not result.passed and result.output.strip():
                self._line(f"    {_cut(result.output.strip().splitlines()[-1])}", "dim")
        summary = _cut(" ".join(complete.summary.split()))
        self._line(f"= {complete.outcome}: {summary}" if summary else f"= {complete.outcome}", OUTCOME_COLOURS[complete.outcome])


def brief(details: Mapping[str, Any]) -> str:
    """Names and values on one line."""
    return " ".join(f"{name}={_cut(_spelled(value))}" for name, value in details.items())


def _lines(text: str) -> str:
    count = len(text.splitlines())
    return "1 line" if count == 1 else f"{count} lines"


def _spelled(value: object) -> str:
    return value if isinstance(value, str) and "\n" not in value else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}… ({len(text)} characters)"
