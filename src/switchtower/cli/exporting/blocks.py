"""What a document is made of, in the order in which it happened. Data and nothing more.

A block is `done` when nothing can change it any more; only then is it written.
"""

from typing import Any

from msgspec import Struct

from switchtower.protocols.push import messages


class ExportBlock(Struct, kw_only=True):
    ts: int
    """In milliseconds since 1970."""
    done: bool = False


class ExportedMessage(ExportBlock, kw_only=True):
    """By a person. `how` tells a message that joined a run from one that began it."""

    text: str
    how: str = ""


class ExportedText(ExportBlock, kw_only=True):
    """What the model says, or with `thinking` what it thinks. `void`: the call failed, and it began again."""

    thinking: bool
    pieces: list[str]
    size: int = 0
    void: bool = False
    goes_on: bool = False
    """The beginning is in the block before: nothing is kept that grows without an end."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class ExportedToolCall(ExportBlock, kw_only=True):
    name: str
    args: dict[str, Any]
    output: str = ""
    """What came while it ran; its result has it too, when there is one."""
    result: str | None = None
    duration_ms: int = 0
    is_error: bool = False
    problem: str = ""


class ExportedApproval(ExportBlock, kw_only=True):
    """An approval. `ending` is empty while nobody has decided."""

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
    """What a program's terminal shows."""

    lines: list[str]
