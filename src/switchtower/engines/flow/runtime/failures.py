"""The failures of a flow, with REP's error numbers."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

UNSUPPORTED_IR_VERSION, UNSUPPORTED_STEP_KIND, INVALID_IR = 1001, 1002, 1003
STEP_FAILED = 2001
STOPPED = 3001
"""rep 10: out of time. A cancelled run ends with it too; `cause` distinguishes the two."""
PANICKED = 3002

TIMEOUT, CANCELLED = "Timeout", "Cancelled"


class FlowRejected(Exception):
    """A flow was refused before any of it ran."""

    def __init__(self, code: int, message: str, *, step_id: str | None = None, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.step_id = step_id
        self.details = dict(details or {})


class StepFailed(Exception):
    """A kind raises this. A failure that is not retriable would occur again, so the step is not retried."""

    def __init__(self, message: str, *, retriable: bool = False, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.retriable = retriable
        self.details = dict(details or {})


class StepFailure(Struct, frozen=True, kw_only=True):
    """The failure of a step or a run, for clients that poll."""

    code: int
    message: str
    step_id: str | None = None
    attempt: int = 0
    retriable: bool = False
    details: dict[str, Any] = {}
    cause: str | None = None

    def to_error_object(self) -> dict[str, Any]:
        """rep 6: the error object."""
        data: dict[str, Any] = {
            "step_id": self.step_id,
            "attempt": self.attempt,
            "retriable": self.retriable,
            "details": self.details,
        }
        if self.cause is not None:
            data["cause"] = self.cause
        return {"code": self.code, "message": self.message, "data": data}


def make_cancelled() -> StepFailure:
    return StepFailure(code=STOPPED, message="the run was cancelled", cause=CANCELLED)


def make_panic(
    error: BaseException, *, message: str = "Runtime panicked", step_id: str | None = None, attempt: int = 0
) -> StepFailure:
    """Makes the failure for a bug in our code or in a kind. The exception's text goes to the log only: on the wire it might
    reveal secrets.
    """
    import sys
    import traceback

    traceback.print_exception(error, file=sys.stderr)
    return StepFailure(code=PANICKED, message=message, step_id=step_id, attempt=attempt)
