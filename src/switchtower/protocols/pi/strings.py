"""What refusals say: one place, because existing clients match parts of these strings. Nothing but words."""

SHUTTING_DOWN = "Server is shutting down"
INTERNAL = "Internal error"
"""Our own bug: no detail on the wire, a traceback in the log."""
CANCELLED = "Command was cancelled"
BAD_JSON = "Invalid JSON: a frame must be one JSON object in UTF-8"
TOO_DEEP = "Invalid JSON: the frame is nested too deeply"
NOT_AN_OBJECT = "Invalid command: a frame must be one JSON object"

BASH_CIRCUIT_OPEN = "Bash circuit breaker open: commands kept timing out; hint: try again in a minute"

INTERRUPTED = "Interrupted: the server ended before the command did"

SHOWN = 100
"""How much of a peer's own words comes back to it."""


def shown(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def invalid(field: str, problem: str) -> str:
    return f"Validation failed: {field}: {problem}"


def unknown_type(type_: str) -> str:
    return f"Unknown command type '{shown(type_)}'"


def session_not_found(session_id: str) -> str:
    return f"Session {session_id} not found"


def session_exists(session_id: str) -> str:
    return f"Session {session_id} already exists"


def session_limit(limit: int) -> str:
    return f"Session limit reached ({limit} sessions)"


def version_mismatch(expected: int, actual: int) -> str:
    return f"Session version mismatch: expected {expected}, got {actual}"


def dependency_unknown(id_: str) -> str:
    return f"Dependency '{id_}' is unknown"


def dependency_failed(id_: str, error: str) -> str:
    return f"Dependency '{id_}' failed: {error}"


def dependency_in_lane(id_: str) -> str:
    return f"Dependency '{id_}' is queued in the same lane and cannot be awaited from this command"


def dependency_timed_out(id_: str, after_s: float) -> str:
    return f"Dependency '{id_}' timed out after {round(after_s * 1_000)}ms"


def depends_on_itself(id_: str) -> str:
    return f"Command '{id_}' cannot depend on itself"


def conflicting_id(id_: str, before: str, now: str) -> str:
    return f"Conflicting id '{id_}': {_use(before, now)}"


def conflicting_key(key: str, before: str, now: str) -> str:
    return f"Conflicting idempotencyKey '{key}': {_use(before, now)}"


def _use(before: str, now: str) -> str:
    return f"previously used for '{before}', now used for '{now}'"


def rate_exceeded(limit: int) -> str:
    return f"Rate limit exceeded ({limit} commands/minute)"


def too_many_in_flight(limit: int) -> str:
    return f"Too many commands in flight ({limit}); hint: wait for answers before sending more"


def timed_out(command: str, after_s: float) -> str:
    return f"Command '{command}' timed out after {round(after_s * 1_000)}ms"


def model_not_found(provider: str, model: str) -> str:
    return f"Model not found: {shown(provider)}/{shown(model)}"


def no_ui_request(request_id: str) -> str:
    return f"No pending UI request with id {shown(request_id)}"


def circuit_open(provider: str) -> str:
    return f"Circuit breaker open: {shown(provider)} keeps failing; hint: try again in a minute"
