"""Folds a session's events into the blocks of a document, one event at a time. Pure.

A block is emitted when nothing can change it any more (`done`), in the order of its start: an open block holds back those after
it. The number of held blocks is bounded, so a session of any length is folded in constant memory.
"""

from collections import deque
from typing import Any, assert_never

from msgspec import UNSET, Struct, UnsetType

from switchtower.client import frames
from switchtower.client.frames import PushEvent
from switchtower.presentation.session_details import RunUsage
from switchtower.protocols.push import messages


class ExportBlock(Struct, kw_only=True):
    ts: int
    """Milliseconds since 1970."""
    done: bool = False


class ExportedMessage(ExportBlock, kw_only=True):
    """A user's message. `how` distinguishes a message that joined a run from one that started it."""

    text: str
    how: str = ""


class ExportedText(ExportBlock, kw_only=True):
    """The model's text, or with `thinking` its thoughts. `void` means that the call failed and the model started again."""

    thinking: bool
    pieces: list[str]
    size: int = 0
    void: bool = False
    goes_on: bool = False
    """True when the start is in the previous block, because no block may grow without limit."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class ExportedToolCall(ExportBlock, kw_only=True):
    name: str
    args: dict[str, Any]
    output: str = ""
    """The output while it ran; the result contains it too, if there is one."""
    result: str | None = None
    duration_ms: int = 0
    is_error: bool = False
    problem: str = ""


class ExportedApproval(ExportBlock, kw_only=True):
    """An approval. `ending` is empty while it is undecided."""

    approval: messages.ApprovalRequired
    ending: str = ""


class ExportedNotice(ExportBlock, kw_only=True):
    text: str
    detail: str = ""
    is_error: bool = False


class ExportedRunEnd(ExportBlock, kw_only=True):
    outcome: str
    summary: str
    results: list[messages.CriterionResult]
    usage: str = ""


class ExportedScreen(ExportBlock, kw_only=True):
    """The screen of a program's terminal."""

    lines: list[str]


MAX_TEXT_CHARS = 1024 * 1024
"""The number of characters after which a text continues in a new block."""
MAX_OUTPUT_CHARS = 256 * 1024
"""The maximum number of characters kept of a running tool's output: its end. A result is kept whole."""
MAX_HELD_BLOCKS = 2_000

_RUN_STARTS = {
    "Compaction started": "The conversation is summarised",
    "Undo started": "The last run is undone",
    "Redo started": "The last undo is taken back",
}
_SILENT_PHASES = (
    "Thinking",
    "Executing tool",
    "Checking acceptance",
    "Checkpoint ",
    "Retry succeeded",
    "Retries failed",
    "Screen",
    "Keys typed by ",
    "Terminal resized",
    "Typing is ",
    "Prompt expanded",
    "Message queued",
    "No longer awaiting input",
)
"""Prefixes of phases that only repeat what the blocks show."""
_SILENT_WARNINGS = frozenset({"SESSION_LOADED", "SESSION_UNLOADED", "SESSION_CHANGED", "ERRAND_STARTED"})


class ExportFold:
    def __init__(self) -> None:
        self.usage = RunUsage()
        """The usage of all folded events."""
        self._held: deque[ExportBlock] = deque()
        self._message: list[ExportedText] = []
        """The blocks of the current, incomplete message."""
        self._tools: list[ExportedToolCall] = []
        self._asked: dict[str, ExportedApproval] = {}
        self._dialogs: dict[str, str] = {}
        self._run_usage = RunUsage()
        self._after_gap = False

    def add_event(self, event: PushEvent) -> list[ExportBlock]:
        """Folds an event and returns the blocks that are now done."""
        self._fold(event)
        ripe = self._take_done()
        while len(self._held) > MAX_HELD_BLOCKS:
            self._release_block(self._held[0])
            ripe += self._take_done()
        return ripe

    def finish(self) -> list[ExportBlock]:
        """Returns the remaining blocks, although they are not done."""
        left, self._held = list(self._held), deque()
        return left

    def _take_done(self) -> list[ExportBlock]:
        ripe = []
        while self._held and self._held[0].done:
            ripe.append(self._held.popleft())
        return ripe

    def _release_block(self, block: ExportBlock) -> None:
        """Emits a block as it is; a later change creates a new block."""
        block.done = True
        self._tools = [tool for tool in self._tools if tool is not block]
        self._message = [prose for prose in self._message if prose is not block]
        self._asked = {name: asked for name, asked in self._asked.items() if asked is not block}

    def _fold(self, event: PushEvent) -> None:
        match event.payload:
            case messages.Token(text):
                self._add_text(event, text, thinking=event.type == "thinking_token")
            case messages.AssistantDone():
                self._end_message()
            case messages.ToolCall(_, name, arguments):
                self._end_message()
                self._tools.append(ExportedToolCall(ts=event.ts, name=name, args=arguments))
                self._held.append(self._tools[-1])
            case messages.ToolResult():
                self._add_result(event, event.payload)
            case messages.Status(_, phase, detail):
                self._add_status(event, phase, _to_text(detail))
            case messages.ApprovalRequired():
                self._add_approval(event, event.payload)
            case messages.ApprovalReceived(approval_id, decision, by):
                self._set_decision(approval_id, f"{'approved' if decision == 'approve' else 'denied'} by {by}")
            case messages.Warn():
                self._add_warning(event, event.payload)
            case messages.Failure(code, message, _, detail):
                self._add_notice(event, f"{code}: {message}", _to_text(detail), is_error=True)
            case messages.RunComplete():
                self._end_run(event, event.payload)
            case messages.SessionSnapshot(_, _, said):
                if self._after_gap and said:
                    self._held.append(ExportedText(ts=event.ts, thinking=False, pieces=[said], done=True))
                self._after_gap = False
            case messages.SessionStarted() | None:
                pass  # push, Protocol Versioning: unknown event types are ignored
            case _:
                assert_never(event.payload)

    def _add_text(self, event: PushEvent, text: str, *, thinking: bool) -> None:
        last = self._message[-1] if self._message else None
        if last is None or last.thinking is not thinking or last.size > MAX_TEXT_CHARS:
            goes_on = last is not None and last.thinking is thinking
            if last is not None and goes_on:
                self._release_block(last)
            last = ExportedText(ts=event.ts, thinking=thinking, pieces=[], goes_on=goes_on)
            self._message.append(last)
            self._held.append(last)
        last.pieces.append(text)
        last.size += len(text)

    def _end_message(self, *, void: bool = False) -> None:
        for prose in self._message:
            prose.done, prose.void = True, void
        self._message = []

    def _add_result(self, event: PushEvent, result: messages.ToolResult) -> None:
        # push, beyond the document: results arrive in the order of their calls.
        tool = next((tool for tool in self._tools if tool.name == result.toolName), None)
        if tool is None:
            tool = ExportedToolCall(ts=event.ts, name=result.toolName, args={})
            self._held.append(tool)
        else:
            self._tools.remove(tool)
        tool.result, tool.duration_ms, tool.is_error = result.text, result.durationMs, result.isError
        if result.structuredError is not None:
            tool.problem = result.structuredError.message
        tool.done = True

    def _add_approval(self, event: PushEvent, approval: messages.ApprovalRequired) -> None:
        """Inserts the approval before the calls that wait for it: the request precedes the action."""
        asked = ExportedApproval(ts=event.ts, approval=approval)
        self._asked[approval.approvalId] = asked
        first_open = next(
            (at for at, block in enumerate(self._held) if isinstance(block, ExportedToolCall) and not block.done), None
        )
        self._held.insert(len(self._held) if first_open is None else first_open, asked)

    def _add_status(self, event: PushEvent, phase: str, detail: str) -> None:
        if (ending := frames.decode_dialog_end(event.payload)) is not None:
            title = self._dialogs.pop(ending.dialog_id, ending.dialog_id)
            self._add_notice(event, f"{title}: {ending.how}")
        elif phase == "Tool output":
            if self._tools:
                self._tools[-1].output = (self._tools[-1].output + detail)[-MAX_OUTPUT_CHARS:]
        elif phase == "Usage" and self._run_usage.add_report(detail):
            self.usage.add_report(detail)
        elif phase == "Run started":
            self._close_open_blocks()
            self._add_message(event, detail)
        elif phase == "Message delivered":
            self._add_message(event, detail, how="while it worked")
        elif phase in _RUN_STARTS:
            self._close_open_blocks()
            self._add_notice(event, _RUN_STARTS[phase])
        elif not phase.startswith(_SILENT_PHASES):
            self._add_notice(event, phase, detail)

    def _add_message(self, event: PushEvent, text: str, *, how: str = "") -> None:
        self._held.append(ExportedMessage(ts=event.ts, text=text, how=how, done=True))

    def _add_warning(self, event: PushEvent, warning: messages.Warn) -> None:
        detail = _to_text(warning.detail)
        if (dialog := frames.decode_dialog_opened(warning)) is not None:
            self._dialogs[dialog.dialog_id] = dialog.title
            self._add_notice(event, f"Asks: {dialog.title}", dialog.message)
            return
        match warning.code:
            case "APPROVAL_EXPIRED" | "APPROVAL_WITHDRAWN":
                self._set_decision(detail, warning.message)
            case "MODEL_RETRY":
                self._end_message(void=True)
                self._add_notice(event, warning.message, detail, is_error=True)
            case "SESSION_CONFIGURED":
                self._add_notice(event, f"Configured: {detail or 'nothing'}")
            case "EVENT_GAP":
                self._after_gap = True
                self._add_notice(event, "What came before is no longer kept in full")
            case code if code not in _SILENT_WARNINGS:
                self._add_notice(event, f"{code}: {warning.message}", detail)

    def _set_decision(self, approval_id: str, ending: str) -> None:
        if (asked := self._asked.pop(approval_id, None)) is not None:
            asked.ending, asked.done = ending, True

    def _end_run(self, event: PushEvent, complete: messages.RunComplete) -> None:
        self._close_open_blocks()
        usage, self._run_usage = self._run_usage, RunUsage()
        self._held.append(
            ExportedRunEnd(
                ts=event.ts,
                outcome=complete.outcome,
                summary=complete.summary,
                results=complete.acceptance.results,
                usage=str(usage) if usage.calls else "",
                done=True,
            )
        )

    def _close_open_blocks(self) -> None:
        """Closes all blocks: the start or end of a run leaves nothing open."""
        self._end_message()
        for block in self._held:
            block.done = True
        self._tools, self._asked, self._dialogs = [], {}, {}

    def _add_notice(self, event: PushEvent, text: str, detail: str = "", *, is_error: bool = False) -> None:
        self._held.append(ExportedNotice(ts=event.ts, text=text, detail=detail, is_error=is_error, done=True))


def _to_text(detail: str | UnsetType) -> str:
    return "" if detail is UNSET else detail
