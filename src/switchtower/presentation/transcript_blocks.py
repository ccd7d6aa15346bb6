"""The pieces of a transcript: what was said, thought, done, asked and how it ended. Each is one noun that the view paints.

A block changes only by `touch`: whoever painted it before sees from `version` that it has to paint again.
"""

from typing import Any

from msgspec import Struct

from switchtower.protocols.push import messages

LONGEST_TEXT = 400_000
"""Characters of one block. Of more, the end is kept: it is what people look for, and the whole is in the journal."""


class TranscriptBlock(Struct, kw_only=True, eq=False):
    seq: int
    """The event that began it."""
    ts: int = 0
    run_id: str | None = None
    version: int = 0

    def mark_changed(self) -> None:
        self.version += 1

    def get_content(self) -> tuple[Any, ...]:
        """All that it shows, to compare."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("version", "pieces", "chars")}
        return type(self).__name__, *fields.values(), getattr(self, "text", None)


class TextStreamBlock(TranscriptBlock, kw_only=True, eq=False):
    """Text that comes piece by piece."""

    pieces: list[str] = []
    chars: int = 0
    dropped: int = 0
    """Characters at the beginning that are not kept."""
    done: bool = False
    void: bool = False
    """The model began this message again."""

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
    """What the model says, as Markdown."""


class ThinkingBlock(TextStreamBlock, kw_only=True, eq=False):
    """What the model thinks, folded unless somebody wants to see it."""


class ToolBlock(TextStreamBlock, kw_only=True, eq=False):
    """A tool's call, what it puts out while it works, and its result. `args` is None when the call was not seen."""

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
    """What a person said. `how` is empty for an ordinary message."""

    text: str
    how: str = ""


class ApprovalBlock(TranscriptBlock, kw_only=True, eq=False):
    """An approval. What was decided is a fact of its own, and may be known before the question."""

    approval: messages.ApprovalRequired


class NoticeBlock(TranscriptBlock, kw_only=True, eq=False):
    """Anything else worth a line. `level` is `info`, `warning` or `error`."""

    level: str
    text: str
    detail: str = ""
    remedy: str = ""


class RunEndBlock(TranscriptBlock, kw_only=True, eq=False):
    """How a run ended."""

    outcome: str
    summary: str
    results: list[messages.CriterionResult] = []
