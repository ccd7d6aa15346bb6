"""REP's taxonomy of errors, and the exit codes that follow from it. Pure."""

from enum import IntEnum

METHOD_NOT_FOUND, INVALID_PARAMS = -32601, -32602
"""JSON-RPC's own codes, as far as we send them."""


class RepErrorCode(IntEnum):
    UNSUPPORTED_IR_VERSION = 1001
    UNSUPPORTED_STEP_KIND = 1002
    INVALID_IR = 1003
    STEP_FAILED = 2001
    BROKEN_TRANSPORT = 3001
    PANICKED = 3002


class RepExitCode(IntEnum):
    OK = 0
    STEP_FAILURE = 1
    INVALID_BEFORE_HANDSHAKE = 2
    """The IR, or another argument, is not valid, and no runtime was started."""
    VALIDATION = 3
    RUNTIME_INTERNAL = 4


def get_exit_code(code: int) -> RepExitCode:
    """rep 6: returns the exit code of the command that made the run. Of JSON-RPC's own codes, params that are refused count as
    validation; a method that a runtime does not have is a protocol mismatch (rep 4), as is all else."""
    if 1000 <= code <= 1999 or code == INVALID_PARAMS:
        return RepExitCode.VALIDATION
    return RepExitCode.STEP_FAILURE if 2000 <= code <= 2999 else RepExitCode.RUNTIME_INTERNAL
