"""A session's events folded into blocks, one event at a time, and older ones put before them. Pure.

After an answer is whole, a run begins or a run ends, nothing is under way: such a point is *settled*, and what comes behind it
folds the same whatever came before. So when an older page arrives, only the events up to the first settled point are folded
again.
"""

from collections.abc import Iterable, Sequence

from msgspec import UNSET

from switchtower.client import dialogs
from switchtower.client.frames import Event
from switchtower.protocols.push import messages
from switchtower.tui.state import blocks
from switchtower.tui.state.facts import BEGINNINGS, Facts
from switchtower.tui.state.remedies import remedy_for

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
"""How phases begin that say nothing new."""
_SILENT_WARNINGS = frozenset({"SESSION_LOADED", "SESSION_UNLOADED", "SESSION_CHANGED", "APPROVAL_WITHDRAWN", "ERRAND_STARTED"})
MOST_BLOCKS = 6_000


class Transcript:
    def __init__(self) -> None:
        self.blocks: list[blocks.Block] = []
        self.facts = Facts()
        self.first_seq = 0
        """The oldest event that is folded in; 0 before the first."""
        self.last_seq = 0
        self._stream: blocks.Answer | blocks.Thought | None = None
        self._message: list[blocks.Streamed] = []
        """What was streamed of the message that is under way."""
        self._open: list[blocks.Tool] = []
        self._after_gap = False
        self._head: list[Event] = []
        """The events up to the first settled point."""
        self._head_blocks = 0
        self._settled = False

    # New events

    def extend(self, events: Iterable[Event]) -> None:
        for event in events:
            self.facts.saw(event)
            self._fold(event)
        self._forget_the_oldest()

    def _fold(self, event: Event) -> None:
        if not self.first_seq:
            self.first_seq = event.seq
        self.last_seq = event.seq
        if not self._settled:
            self._head.append(event)
        if self._show(event) and not self._settled:
            self._settled = True
            self._head_blocks = len(self.blocks)

    def _show(self, event: Event) -> bool:
        """Whether nothing is under way any more behind this event."""
        match event.payload:
            case messages.Token(text):
                self._streamed(event, text)
            case messages.AssistantDone():
                self._all_done()
                return True
            case messages.ToolCall(_, name, arguments):
                self._end_stream()
                card = blocks.Tool(seq=event.seq, ts=event.ts, run_id=event.run_id, name=name, args=arguments, pieces=[])
                self._open.append(card)
                self.blocks.append(card)
            case messages.ToolResult():
                self._finished(event, event.payload)
            case messages.Status(_, phase, detail):
                return self._status(event, phase, "" if detail is UNSET else detail)
            case messages.ApprovalRequired():
                self._end_stream()
                self.blocks.append(blocks.Asked(seq=event.seq, ts=event.ts, run_id=event.run_id, approval=event.payload))
            case messages.Warn():
                self._warning(event, event.payload)
            case messages.Failure(code, message, _, detail):
                self._notice(event, "error", message, detail="" if detail is UNSET else detail, remedy=remedy_for(code))
            case messages.RunComplete(_, outcome, summary, acceptance):
                self._all_done()
                ended = blocks.Ended(
                    seq=event.seq, ts=event.ts, run_id=event.run_id, outcome=outcome, summary=summary, results=acceptance.results
                )
                self.blocks.append(ended)
                return True
            case messages.SessionSnapshot():
                self._snapshot(event, event.payload)
            case messages.SessionStarted() | messages.ApprovalReceived() | None:
                pass  # push, Protocol Versioning: unknown event types are ignored
        return False

    def _streamed(self, event: Event, text: str) -> None:
        kind = blocks.Answer if event.type == "assistant_token" else blocks.Thought
        if type(self._stream) is not kind:
            self._end_stream()
            self._stream = kind(seq=event.seq, ts=event.ts, run_id=event.run_id, pieces=[])
            self._message.append(self._stream)
            self.blocks.append(self._stream)
        self._stream.add(text)

    def _end_stream(self) -> None:
        if self._stream is not None:
            self._stream.done = True
            self._stream.touch()
            self._stream = None

    def _all_done(self) -> None:
        self._end_stream()
        self._message.clear()
        self._after_gap = False
        for card in self._open:
            card.done = True
            card.touch()
        self._open.clear()

    def _finished(self, event: Event, result: messages.ToolResult) -> None:
        # push, beyond the document: results come in the order of their calls.
        card = next((card for card in self._open if card.name == result.toolName), None)
        if card is None:
            card = blocks.Tool(seq=event.seq, ts=event.ts, run_id=event.run_id, name=result.toolName, pieces=[])
            self.blocks.append(card)
        else:
            self._open.remove(card)
        self._end_stream()
        self._message.clear()
        card.result = result.text[-blocks.LONGEST_TEXT :]
        card.duration_ms, card.is_error, card.done = result.durationMs, result.isError, True
        if result.structuredError is not None:
            card.problem = result.structuredError.message
        card.touch()

    def _status(self, event: Event, phase: str, detail: str) -> bool:
        if phase == "Tool output":
            if not self._open:
                card = blocks.Tool(seq=event.seq, ts=event.ts, run_id=event.run_id, name="", pieces=[])
                self._open.append(card)
                self.blocks.append(card)
            self._open[-1].add(detail)
        elif phase in BEGINNINGS:
            self._all_done()
            if phase == "Run started":
                self.blocks.append(blocks.Said(seq=event.seq, ts=event.ts, run_id=event.run_id, text=detail))
            else:
                self._notice(event, "info", BEGINNINGS[phase] or f"$ {detail}")
            return True
        elif phase == "Message delivered":
            self._end_stream()
            self.blocks.append(blocks.Said(seq=event.seq, ts=event.ts, run_id=event.run_id, text=detail, how="while it worked"))
        elif not phase.startswith(_SILENT_PHASES):
            self._notice(event, "info", f"{phase}: {detail}" if detail else phase)
        return False

    def _warning(self, event: Event, warning: messages.Warn) -> None:
        detail = "" if warning.detail is UNSET else warning.detail
        if (dialog := dialogs.opened(warning)) is not None:
            self._notice(event, "info", f"Asks: {dialog.title}")
            return
        match warning.code:
            case code if code in _SILENT_WARNINGS:
                pass
            case "MODEL_RETRY":
                for block in self._message:
                    block.void = True
                    block.touch()
                self._end_stream()
                self._message.clear()
                self._notice(event, "warning", warning.message, detail=detail)
            case "SESSION_CONFIGURED":
                self._notice(event, "info", f"Configured: {detail or 'nothing'}")
            case "EVENT_GAP":
                self._after_gap = True
                self._notice(event, "info", "What came before is no longer kept in full")
            case code:
                self._notice(event, "warning", warning.message, detail=detail, remedy=remedy_for(code))

    def _snapshot(self, event: Event, snapshot: messages.SessionSnapshot) -> None:
        if self._after_gap and snapshot.lastAssistantText:
            self._end_stream()
            answer = blocks.Answer(
                seq=event.seq, ts=event.ts, run_id=event.run_id, pieces=[snapshot.lastAssistantText], done=True
            )
            self.blocks.append(answer)
        self._after_gap = False

    def _notice(self, event: Event, level: str, text: str, *, detail: str = "", remedy: str = "") -> None:
        self._end_stream()
        notice = blocks.Notice(
            seq=event.seq, ts=event.ts, run_id=event.run_id, level=level, text=text, detail=detail, remedy=remedy
        )
        self.blocks.append(notice)

    # Older events

    def prepend(self, page: Sequence[Event]) -> int:
        """Puts the events that came directly before the first one in front. Returns how many blocks there are more."""
        if not page:
            return 0
        older = Transcript()
        for event in page:
            self.facts.saw(event)
            older._fold(event)
        for event in self._head:
            older._fold(event)
        before = len(self.blocks)
        if not self._settled:
            # All that is here belongs to something that began in the page.
            self._stream, self._message, self._open, self._after_gap = (
                older._stream,
                older._message,
                older._open,
                older._after_gap,
            )
            self.blocks[:] = older.blocks
        else:
            self.blocks[: self._head_blocks] = older.blocks
        self._head, self._head_blocks, self._settled = older._head, older._head_blocks, older._settled
        self.first_seq = page[0].seq
        return len(self.blocks) - before

    def _forget_the_oldest(self) -> None:
        """Memory is bounded: what is dropped here can be read again like any older page. Cut where a run begins."""
        if len(self.blocks) <= MOST_BLOCKS + MOST_BLOCKS // 4:
            return
        for at in range(len(self.blocks) - MOST_BLOCKS, len(self.blocks)):
            block = self.blocks[at]
            if isinstance(block, blocks.Said) and not block.how:
                del self.blocks[:at]
                self.first_seq, self._head, self._head_blocks, self._settled = block.seq, [], 0, True
                return
