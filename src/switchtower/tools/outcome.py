"""The inputs and outputs of tools.

A tool that cannot do its work raises `ToolFailed`; the toolbox turns that into an output, so that a model reads about it and the
run continues.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

from msgspec import Struct

from switchtower.core import events


class ToolErrorType(StrEnum):
    """Push's names for failures of a tool, as far as our tools need them."""

    FILE_NOT_FOUND = "FILE_NOT_FOUND"
    EDIT_HASH_MISMATCH = "EDIT_HASH_MISMATCH"
    EDIT_CONTENT_NOT_FOUND = "EDIT_CONTENT_NOT_FOUND"
    STALE_FILE = "STALE_FILE"
    EXEC_TIMEOUT = "EXEC_TIMEOUT"
    EXEC_NON_ZERO_EXIT = "EXEC_NON_ZERO_EXIT"
    SANDBOX_UNREACHABLE = "SANDBOX_UNREACHABLE"
    EDIT_GUARD_BLOCKED = "EDIT_GUARD_BLOCKED"
    WRITE_FAILED = "WRITE_FAILED"
    UNKNOWN = "UNKNOWN"


class ToolEffect(StrEnum):
    """The effect that a tool may have. Reads may run concurrently; everything else runs one by one."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"


async def ignore_progress(text: str) -> None:
    """Discards progress."""


class ToolContext(Struct, frozen=True):
    """The place and the run that a tool works for."""

    workspace: str
    run_id: str
    session_id: str = ""
    call_id: str = ""
    sandbox: str = "local"
    progress: Callable[[str], Awaitable[None]] = ignore_progress
    """Receives each piece of output, for people to watch. It may wait, so that a flood is slowed down."""


class ToolOutput(Struct, frozen=True):
    """The result of a call. The model reads `text`; `error` is present exactly when `is_error` is set."""

    text: str
    is_error: bool = False
    error: events.ToolError | None = None
    result: dict[str, Any] | None = None
    """The CallToolResult of an MCP tool."""


class ToolFailed(Exception):
    """A tool could not do its work."""

    def __init__(self, type: ToolErrorType, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.type = type
        self.message = message
        self.retryable = retryable


def make_failure(type: ToolErrorType, message: str, *, text: str | None = None, retryable: bool = False) -> ToolOutput:
    """Makes an error output; its text is the message unless there is more to read."""
    return ToolOutput(
        text=message if text is None else text,
        is_error=True,
        error=events.ToolError(type=type.value, message=message, retryable=retryable),
    )
