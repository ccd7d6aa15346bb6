"""The blocks of a transcript: messages, thinking, tool calls, approvals, notices and the ends of runs.

A block changes only through `mark_changed`: a view sees from `version` that it must paint the block again.
"""

from typing import Any

from msgspec import Struct

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
