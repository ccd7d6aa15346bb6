"""What a document is made of, in the order in which it happened. Data and nothing more.

A block is `done` when nothing can change it any more; only then is it written.
"""

from typing import Any

from msgspec import Struct

from switchtower.protocols.push import messages


class Block(Struct, kw_only=True):
    ts: int
    """In milliseconds since 1970."""
    done: bool = False


class Said(Block, kw_only=True):
    """By a person. `how` tells a message that joined a run from one that began it."""

    text: str
    how: str = ""


class Prose(Block, kw_only=True):
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


class Tool(Block, kw_only=True):
    name: str
    args: dict[str, Any]
    output: str = ""
    """What came while it ran; its result has it too, when there is one."""
    result: str | None = None
    duration_ms: int = 0
    is_error: bool = False
    problem: str = ""


class Asked(Block, kw_only=True):
    """An approval. `ending` is empty while nobody has decided."""

    approval: messages.ApprovalRequired
    ending: str = ""


class Notice(Block, kw_only=True):
    text: str
    detail: str = ""
    is_error: bool = False


class Ended(Block, kw_only=True):
    outcome: str
    summary: str
    results: list[messages.CriterionResult]
    usage: str = ""


class Screen(Block, kw_only=True):
    """What a program's terminal shows."""

    lines: list[str]
