"""The texts of refusals, in one place because existing clients match parts of these strings, and the conversion of whatever a
handler raised: peers' mistakes and our own bugs."""

import logging
from collections.abc import Awaitable

from switchtower.core import errors


class PiCommandError(Exception):
    """A handler's refusal, as it is sent on the wire."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class SessionLimitReached(PiCommandError):
    """The maximum number of sessions is loaded."""


class SessionBusy(Exception):
    """The command has to wait at the head of its lane; its handler is called again when `until` is done."""

    def __init__(self, until: Awaitable[None]) -> None:
        super().__init__("the session is busy")
        self.until = until


SHUTTING_DOWN = "Server is shutting down"
INTERNAL = "Internal error"
"""The answer to our own bug: no detail on the wire, a traceback in the log."""
CANCELLED = "Command was cancelled"
BAD_JSON = "Invalid JSON: a frame must be one JSON object in UTF-8"
TOO_DEEP = "Invalid JSON: the frame is nested too deeply"
NOT_AN_OBJECT = "Invalid command: a frame must be one JSON object"

BASH_CIRCUIT_OPEN = "Bash circuit breaker open: commands kept timing out; hint: try again in a minute"

INTERRUPTED = "Interrupted: the server ended before the command did"

MAX_ECHO_LENGTH = 100
"""Characters of a peer's own text that an error repeats."""


def shorten(text: str) -> str:
    return text if len(text) <= MAX_ECHO_LENGTH else f"{text[:MAX_ECHO_LENGTH]}…"


def format_invalid_field(field: str, problem: str) -> str:
    return f"Validation failed: {field}: {problem}"


def format_unknown_type(type_: str) -> str:
    return f"Unknown command type '{shorten(type_)}'"


def format_session_not_found(session_id: str) -> str:
    return f"Session {session_id} not found"


def format_session_exists(session_id: str) -> str:
    return f"Session {session_id} already exists"


def format_session_limit(limit: int) -> str:
    return f"Session limit reached ({limit} sessions)"


def format_version_mismatch(expected: int, actual: int) -> str:
    return f"Session version mismatch: expected {expected}, got {actual}"


def format_dependency_unknown(id_: str) -> str:
    return f"Dependency '{id_}' is unknown"


def format_dependency_failed(id_: str, error: str) -> str:
    return f"Dependency '{id_}' failed: {error}"


def format_dependency_in_lane(id_: str) -> str:
    return f"Dependency '{id_}' is queued in the same lane and cannot be awaited from this command"


def format_dependency_timeout(id_: str, after_s: float) -> str:
    return f"Dependency '{id_}' timed out after {round(after_s * 1_000)}ms"


def format_self_dependency(id_: str) -> str:
    return f"Command '{id_}' cannot depend on itself"


def format_conflicting_id(id_: str, before: str, now: str) -> str:
    return f"Conflicting id '{id_}': {_format_conflict(before, now)}"


def format_conflicting_key(key: str, before: str, now: str) -> str:
    return f"Conflicting idempotencyKey '{key}': {_format_conflict(before, now)}"


def _format_conflict(before: str, now: str) -> str:
    return f"previously used for '{before}', now used for '{now}'"


def format_rate_exceeded(limit: int) -> str:
    return f"Rate limit exceeded ({limit} commands/minute)"


def format_too_many_in_flight(limit: int) -> str:
    return f"Too many commands in flight ({limit}); hint: wait for answers before sending more"


def format_timeout(command: str, after_s: float) -> str:
    return f"Command '{command}' timed out after {round(after_s * 1_000)}ms"


def format_model_not_found(provider: str, model: str) -> str:
    return f"Model not found: {shorten(provider)}/{shorten(model)}"


def format_no_ui_request(request_id: str) -> str:
    return f"No pending UI request with id {shorten(request_id)}"


def format_circuit_open(provider: str) -> str:
    return f"Circuit breaker open: {shorten(provider)} keeps failing; hint: try again in a minute"


log = logging.getLogger(__name__)


def describe_failure(problem: BaseException, command: str) -> str:
    if isinstance(problem, PiCommandError):
        return problem.error
    if isinstance(problem, errors.CoreError):
        return problem.message
    log.error("pi command `%s` failed", command, exc_info=problem)
    return INTERNAL
