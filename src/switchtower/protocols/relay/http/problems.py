"""Why a request is refused, as HTTP tells it: one exception, and one table from relay's words to a status."""

from collections.abc import Mapping
from types import MappingProxyType

from switchtower.core import errors as core_errors
from switchtower.core import registry
from switchtower.protocols.relay import errors

CHALLENGE = MappingProxyType({"WWW-Authenticate": 'Bearer realm="switchtower"'})
_CLOSE = MappingProxyType({"Connection": "close"})
_NONE: Mapping[str, str] = MappingProxyType({})

OTHERWISE_REFUSED = 409
_STATUS = {
    errors.UNKNOWN_RUN: 404,
    errors.UNKNOWN_HOST: 404,
    errors.TABLE[core_errors.ApprovalNotFound]: 404,
    errors.HOST_OFFLINE: 502,
    errors.HOST_GONE: 502,
    errors.DENIED: 403,
    errors.TABLE[core_errors.AttachForbidden]: 403,
    errors.TABLE[core_errors.Overloaded]: 503,
    errors.TABLE[core_errors.ShuttingDown]: 503,
    errors.TABLE[core_errors.JournalUnavailable]: 503,
    errors.INTERNAL: 500,
}


class Problem(Exception):
    """A request that goes no further. `error` and `hint` are what its sender reads."""

    def __init__(self, status: int, error: str, *, hint: str | None = None, headers: Mapping[str, str] = _NONE) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.hint = hint
        self.headers = headers


def unauthorized(error: str = "unauthorized", hint: str | None = "log in with `POST /auth/login`") -> Problem:
    return Problem(401, error, hint=hint, headers=CHALLENGE)


def of_a_run() -> Problem:
    # It is the owner's process too, and may not decide in the owner's name about what it does itself.
    return Problem(403, "a process of a run may not do this", hint="ask a person to do it")


def unattributed() -> Problem:
    return Problem(
        403, "the process at the other end cannot be attributed", hint="connect again, and stay until you are answered"
    )


def unknown_run() -> Problem:
    return Problem(404, errors.UNKNOWN_RUN)


def unknown_host() -> Problem:
    return Problem(404, errors.UNKNOWN_HOST, hint="`tower hosts` shows them")


def too_large(limit: int) -> Problem:
    return Problem(413, f"the body is longer than {limit} bytes", headers=_CLOSE)


def too_slow() -> Problem:
    return Problem(408, "the body did not come in time", headers=_CLOSE)


def internal() -> Problem:
    return Problem(500, errors.INTERNAL)


def of(failure: Exception) -> Problem | None:
    """None for what is nobody's refusal."""
    match failure:
        case Problem():
            return failure
        case errors.HostOffline():
            return Problem(502, failure.text)
        case errors.Refused():
            return Problem(_STATUS.get(failure.text, OTHERWISE_REFUSED), failure.text)
        case core_errors.RoleForbidden():
            return Problem(403, failure.message)
        case core_errors.CoreError():
            return of(errors.Refused(errors.of(failure)))
        case registry.RegistryUnavailable():
            return Problem(503, failure.message, hint=failure.hint)
        case _:
            return None
