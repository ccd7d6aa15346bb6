"""What a tool is given and what it hands back. Nothing here does anything.

A tool that cannot do its work raises `Failed`; the toolbox turns that into an output, so that a model reads about it and
a run never dies of it.
"""

from enum import StrEnum

from msgspec import Struct

from switchtower.core import events


class ErrorType(StrEnum):
    """Push's names for what can go wrong in a tool, as far as ours need them."""

    FILE_NOT_FOUND = "FILE_NOT_FOUND"
    EXEC_TIMEOUT = "EXEC_TIMEOUT"
    EXEC_NON_ZERO_EXIT = "EXEC_NON_ZERO_EXIT"
    SANDBOX_UNREACHABLE = "SANDBOX_UNREACHABLE"
    EDIT_GUARD_BLOCKED = "EDIT_GUARD_BLOCKED"
    WRITE_FAILED = "WRITE_FAILED"
    UNKNOWN = "UNKNOWN"


class ToolContext(Struct, frozen=True):
    """Where and for which run a tool works."""

    workspace: str
    run_id: str


class ToolOutput(Struct, frozen=True):
    """What a call came to. `text` is what the model reads; `error` is there exactly when `is_error` is set."""

    text: str
    is_error: bool = False
    error: events.ToolError | None = None


class Failed(Exception):
    """A tool could not do its work."""

    def __init__(self, type: ErrorType, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.type = type
        self.message = message
        self.retryable = retryable


def failure(type: ErrorType, message: str, *, text: str | None = None, retryable: bool = False) -> ToolOutput:
    """An error output; its text is the message unless there is more to read."""
    return ToolOutput(
        text=message if text is None else text,
        is_error=True,
        error=events.ToolError(type=type.value, message=message, retryable=retryable),
    )
