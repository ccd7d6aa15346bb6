"""Folds a session's events into transcript blocks, one event at a time, and puts older events in front of them. Pure.

When an answer is complete, a run starts or a run ends, nothing is left open: such a point is *settled*, and the events after it
fold the same way whatever precedes them. So when an older page arrives, only the events up to the first settled point are folded
again.

The blocks of a transcript: messages, thinking, tool calls, approvals, notices and the ends of runs.

A block changes only through `mark_changed`: a view sees from `version` that it must paint the block again."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET, Struct

from switchtower.client import frames
from switchtower.client.frames import PushEvent
from switchtower.presentation.session_details import START_PHASES, RunFacts
from switchtower.protocols.push import messages

LONGEST_TEXT = 400_000
"""The maximum number of characters in one block. Of longer text the end is kept, which users need most; the journal has all."""


class TranscriptBlock(Struct, kw_only=True, eq=False):
    seq: int
    """The seq of the event that created the block."""
    ts: int = 0
    run_id: str | None = None
    version: int = 0

    def mark_changed(self) -> None:
        self.version += 1

    def get_content(self) -> tuple[Any, ...]:
        """Returns everything that the block shows, for comparison."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("version", "pieces", "chars")}
        return type(self).__name__, *fields.values(), getattr(self, "text", None)


class TextStreamBlock(TranscriptBlock, kw_only=True, eq=False):
    """Text that arrives in pieces."""

    pieces: list[str] = []
    chars: int = 0
    dropped: int = 0
    """The number of characters dropped from the start."""
    done: bool = False
    void: bool = False
    """True after the model restarted this message."""

    def append(self, text: str) -> None:
        self.pieces.append(text)
        self.chars += len(text)
        if self.chars > LONGEST_TEXT + LONGEST_TEXT // 4:
            whole = self.text
            self.pieces[:] = [whole[-LONGEST_TEXT:]]
            self.dropped += len(whole) - LONGEST_TEXT
            self.chars = LONGEST_TEXT
        self.mark_changed()

    @property
    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces[:] = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


class AnswerBlock(TextStreamBlock, kw_only=True, eq=False):
    """The model's answer, as Markdown."""


class ThinkingBlock(TextStreamBlock, kw_only=True, eq=False):
    """The model's thinking, collapsed until the user expands it."""


class ToolBlock(TextStreamBlock, kw_only=True, eq=False):
    """A tool call, its output while it runs, and its result. `args` is None when the call itself was not seen."""

    name: str
    args: dict[str, Any] | None = None
    result: str | None = None
    duration_ms: int = 0
    is_error: bool = False
    problem: str = ""

    @property
    def is_open(self) -> bool:
        return self.result is None and not self.done


class UserMessageBlock(TranscriptBlock, kw_only=True, eq=False):
    """A user's message. `how` is empty for an ordinary message."""

    text: str
    how: str = ""


class ApprovalBlock(TranscriptBlock, kw_only=True, eq=False):
    """An approval request. The decision is a separate fact and may be known before the request."""

    approval: messages.ApprovalRequired


class NoticeBlock(TranscriptBlock, kw_only=True, eq=False):
    """Any other event worth a line. `level` is `info`, `warning` or `error`."""

    level: str
    text: str
    detail: str = ""
    remedy: str = ""


class RunEndBlock(TranscriptBlock, kw_only=True, eq=False):
    """The end of a run with its outcome."""

    outcome: str
    summary: str
    results: list[messages.CriterionResult] = []


_REMEDIES = {
    "MODEL_ERROR": "try again, or choose another model with `/model`",
    "PROVIDER_NOT_CONFIGURED": "choose another model with `/model`; `tower models` says what each one needs",
    "BUDGET_EXCEEDED": "send a message to go on with a fresh budget",
    "RUN_INTERRUPTED": "send a message to go on where it stopped",
    "RESTORE_FAILED": "look at `/diff`; the files that were changed since are left alone",
    "SANDBOX_UNAVAILABLE": "restore the folder or install the sandbox that is missing, or start a session with another",
    "NOT_STARTED": "check that the program is installed and in the PATH",
    "APPROVAL_EXPIRED": "send a message to go on; it will be asked again",
    "COMPACTION_FAILED": "try `/compact` again, or go on in a `/new` session",
    "MCP_SERVER_FAILED": "see `tower logs` for what the server said",
}


def find_remedy(code: str) -> str:
    return _REMEDIES.get(code, "")


_SILENT_PHASES = (
    "Checkpoint ",
    "Retry succeeded",
    "Retries failed",
    "Screen",
    "Keys typed by ",
    "Terminal resized",
    "Usage",
    "Typing is ",
    "Prompt expanded",
    "Dialog ",
    "Thinking",
    "Executing tool",
)
"""Prefixes of phases that add no information for the user."""
_SILENT_WARNINGS = frozenset({"SESSION_LOADED", "SESSION_UNLOADED", "SESSION_CHANGED", "APPROVAL_WITHDRAWN", "ERRAND_STARTED"})
MOST_BLOCKS = 6_000


class TranscriptModel:
    def __init__(self) -> None:
        self.blocks: list[TranscriptBlock] = []
        self.facts = RunFacts()
        self.first_seq = 0
        """The seq of the oldest folded event; 0 before the first."""
        self.last_seq = 0
        self._stream: AnswerBlock | ThinkingBlock | None = None
        self._message: list[TextStreamBlock] = []
        """The streamed blocks of the message that is still incomplete."""
        self._open_tools: list[ToolBlock] = []
        self._after_gap = False
        self._head: list[PushEvent] = []
        """The events up to the first settled point."""
        self._head_blocks = 0
        self._settled = False

    # New events

    def extend(self, events: Iterable[PushEvent]) -> None:
        for event in events:
            self.facts.on_event(event)
            self._fold(event)
        self._drop_oldest()

    def _fold(self, event: PushEvent) -> None:
        if not self.first_seq:
            self.first_seq = event.seq
        self.last_seq = event.seq
        if not self._settled:
            self._head.append(event)
        if self._show(event) and not self._settled:
            self._settled = True
            self._head_blocks = len(self.blocks)

    def _show(self, event: PushEvent) -> bool:
        """Folds one event and returns whether the point after it is settled."""
        match event.payload:
            case messages.Token(text):
                self._append_stream(event, text)
            case messages.AssistantDone():
                self._close_all()
                return True
            case messages.ToolCall(_, name, arguments):
                self._end_stream()
                card = ToolBlock(seq=event.seq, ts=event.ts, run_id=event.run_id, name=name, args=arguments, pieces=[])
                self._open_tools.append(card)
                self.blocks.append(card)
            case messages.ToolResult():
                self._finish_tool(event, event.payload)
            case messages.Status(_, phase, detail):
                return self._add_status(event, phase, "" if detail is UNSET else detail)
            case messages.ApprovalRequired():
                self._end_stream()
                self.blocks.append(ApprovalBlock(seq=event.seq, ts=event.ts, run_id=event.run_id, approval=event.payload))
            case messages.Warn():
                self._add_warning(event, event.payload)
            case messages.Failure(code, message, _, detail):
                self._add_notice(event, "error", message, detail="" if detail is UNSET else detail, remedy=find_remedy(code))
            case messages.RunComplete(_, outcome, summary, acceptance):
                self._close_all()
                ended = RunEndBlock(
                    seq=event.seq, ts=event.ts, run_id=event.run_id, outcome=outcome, summary=summary, results=acceptance.results
                )
                self.blocks.append(ended)
                return True
            case messages.SessionSnapshot():
                self._apply_snapshot(event, event.payload)
            case messages.SessionStarted() | messages.ApprovalReceived() | None:
                pass  # push, Protocol Versioning: unknown event types are ignored
        return False

    def _append_stream(self, event: PushEvent, text: str) -> None:
        kind = AnswerBlock if event.type == "assistant_token" else ThinkingBlock
        if type(self._stream) is not kind:
            self._end_stream()
            self._stream = kind(seq=event.seq, ts=event.ts, run_id=event.run_id, pieces=[])
            self._message.append(self._stream)
            self.blocks.append(self._stream)
        self._stream.append(text)

    def _end_stream(self) -> None:
        if self._stream is not None:
            self._stream.done = True
            self._stream.mark_changed()
            self._stream = None

    def _close_all(self) -> None:
        self._end_stream()
        self._message.clear()
        self._after_gap = False
        for card in self._open_tools:
            card.done = True
            card.mark_changed()
        self._open_tools.clear()

    def _finish_tool(self, event: PushEvent, result: messages.ToolResult) -> None:
        # push, beyond the document: results arrive in the order of their calls.
        card = next((card for card in self._open_tools if card.name == result.toolName), None)
        if card is None:
            card = ToolBlock(seq=event.seq, ts=event.ts, run_id=event.run_id, name=result.toolName, pieces=[])
            self.blocks.append(card)
        else:
            self._open_tools.remove(card)
        self._end_stream()
        self._message.clear()
        card.result = result.text[-LONGEST_TEXT:]
        card.duration_ms, card.is_error, card.done = result.durationMs, result.isError, True
        if result.structuredError is not None:
            card.problem = result.structuredError.message
        card.mark_changed()

    def _add_status(self, event: PushEvent, phase: str, detail: str) -> bool:
        if phase == "Tool output":
            if not self._open_tools:
                card = ToolBlock(seq=event.seq, ts=event.ts, run_id=event.run_id, name="", pieces=[])
                self._open_tools.append(card)
                self.blocks.append(card)
            self._open_tools[-1].append(detail)
        elif phase in START_PHASES:
            self._close_all()
            if phase == "Run started":
                self.blocks.append(UserMessageBlock(seq=event.seq, ts=event.ts, run_id=event.run_id, text=detail))
            else:
                self._add_notice(event, "info", START_PHASES[phase] or f"$ {detail}")
            return True
        elif phase == "Message delivered":
            self._end_stream()
            self.blocks.append(
                UserMessageBlock(seq=event.seq, ts=event.ts, run_id=event.run_id, text=detail, how="while it worked")
            )
        elif not phase.startswith(_SILENT_PHASES):
            self._add_notice(event, "info", f"{phase}: {detail}" if detail else phase)
        return False

    def _add_warning(self, event: PushEvent, warning: messages.Warn) -> None:
        detail = "" if warning.detail is UNSET else warning.detail
        if (dialog := frames.decode_dialog_opened(warning)) is not None:
            self._add_notice(event, "info", f"Asks: {dialog.title}")
            return
        match warning.code:
            case code if code in _SILENT_WARNINGS:
                pass
            case "MODEL_RETRY":
                for block in self._message:
                    block.void = True
                    block.mark_changed()
                self._end_stream()
                self._message.clear()
                self._add_notice(event, "warning", warning.message, detail=detail)
            case "SESSION_CONFIGURED":
                self._add_notice(event, "info", f"Configured: {detail or 'nothing'}")
            case "EVENT_GAP":
                self._after_gap = True
                self._add_notice(event, "info", "What came before is no longer kept in full")
            case code:
                self._add_notice(event, "warning", warning.message, detail=detail, remedy=find_remedy(code))

    def _apply_snapshot(self, event: PushEvent, snapshot: messages.SessionSnapshot) -> None:
        if self._after_gap and snapshot.lastAssistantText:
            self._end_stream()
            answer = AnswerBlock(seq=event.seq, ts=event.ts, run_id=event.run_id, pieces=[snapshot.lastAssistantText], done=True)
            self.blocks.append(answer)
        self._after_gap = False

    def _add_notice(self, event: PushEvent, level: str, text: str, *, detail: str = "", remedy: str = "") -> None:
        self._end_stream()
        notice = NoticeBlock(
            seq=event.seq, ts=event.ts, run_id=event.run_id, level=level, text=text, detail=detail, remedy=remedy
        )
        self.blocks.append(notice)

    # Older events

    def prepend(self, page: Sequence[PushEvent]) -> int:
        """Puts a page of events directly before the first one, and returns how many blocks this adds."""
        if not page:
            return 0
        older = TranscriptModel()
        for event in page:
            self.facts.on_event(event)
            older._fold(event)
        for event in self._head:
            older._fold(event)
        before = len(self.blocks)
        if not self._settled:
            # Every event here belongs to something that started in the older page.
            self._stream, self._message, self._open_tools, self._after_gap = (
                older._stream,
                older._message,
                older._open_tools,
                older._after_gap,
            )
            self.blocks[:] = older.blocks
        else:
            self.blocks[: self._head_blocks] = older.blocks
        self._head, self._head_blocks, self._settled = older._head, older._head_blocks, older._settled
        self.first_seq = page[0].seq
        return len(self.blocks) - before

    def _drop_oldest(self) -> None:
        """Bounds memory: a user can load dropped blocks again like any older page. It cuts where a run starts."""
        if len(self.blocks) <= MOST_BLOCKS + MOST_BLOCKS // 4:
            return
        for at in range(len(self.blocks) - MOST_BLOCKS, len(self.blocks)):
            block = self.blocks[at]
            if isinstance(block, UserMessageBlock) and not block.how:
                del self.blocks[:at]
                self.first_seq, self._head, self._head_blocks, self._settled = block.seq, [], 0, True
                return
