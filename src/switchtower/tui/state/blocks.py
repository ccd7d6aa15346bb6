"""The pieces of a transcript: what was said, thought, done, asked and how it ended. Each is one noun that the view paints.

A block changes only by `touch`: whoever painted it before sees from `version` that it has to paint again.
"""

from typing import Any

from msgspec import Struct

from switchtower.protocols.push import messages

LONGEST_TEXT = 400_000
"""Characters of one block. Of more, the end is kept: it is what people look for, and the whole is in the journal."""


class Block(Struct, kw_only=True, eq=False):
    seq: int
    """The event that began it."""
    ts: int = 0
    run_id: str | None = None
    version: int = 0

    def touch(self) -> None:
        self.version += 1

    def says(self) -> tuple[Any, ...]:
        """All that it shows, to compare."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("version", "pieces", "chars")}
        return type(self).__name__, *fields.values(), getattr(self, "text", None)


class Streamed(Block, kw_only=True, eq=False):
    """Text that comes piece by piece."""

    pieces: list[str] = []
    chars: int = 0
    dropped: int = 0
    """Characters at the beginning that are not kept."""
    done: bool = False
    void: bool = False
    """The model began this message again."""

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.chars += len(text)
        if self.chars > LONGEST_TEXT + LONGEST_TEXT // 4:
            whole = self.text
            self.pieces[:] = [whole[-LONGEST_TEXT:]]
            self.dropped += len(whole) - LONGEST_TEXT
            self.chars = LONGEST_TEXT
        self.touch()

    @property
    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces[:] = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


class Answer(Streamed, kw_only=True, eq=False):
    """What the model says, as Markdown."""


class Thought(Streamed, kw_only=True, eq=False):
    """What the model thinks, folded unless somebody wants to see it."""


class Tool(Streamed, kw_only=True, eq=False):
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


class Said(Block, kw_only=True, eq=False):
    """What a person said. `how` is empty for an ordinary message."""

    text: str
    how: str = ""


class Asked(Block, kw_only=True, eq=False):
    """An approval. What was decided is a fact of its own, and may be known before the question."""

    approval: messages.ApprovalRequired


class Notice(Block, kw_only=True, eq=False):
    """Anything else worth a line. `level` is `info`, `warning` or `error`."""

    level: str
    text: str
    detail: str = ""
    remedy: str = ""


class Ended(Block, kw_only=True, eq=False):
    """How a run ended."""

    outcome: str
    summary: str
    results: list[messages.CriterionResult] = []
