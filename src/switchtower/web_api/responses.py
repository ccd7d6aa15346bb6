"""HTTP errors and responses: one exception for a refused request, one table from relay's refusals to a status, and the conversion
of handlers' results. Everything that is not a stream or a page is JSON."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from starlette.responses import Response

from switchtower.core import errors as core_errors
from switchtower.core.ports import registry
from switchtower.protocols.relay import errors

CHALLENGE = MappingProxyType({"WWW-Authenticate": 'Bearer realm="switchtower"'})
_CLOSE = MappingProxyType({"Connection": "close"})
_NONE: Mapping[str, str] = MappingProxyType({})

DEFAULT_STATUS = 409
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


class HttpError(Exception):
    """A request is refused. The client gets `error` and `hint`."""

    def __init__(self, status: int, error: str, *, hint: str | None = None, headers: Mapping[str, str] = _NONE) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.hint = hint
        self.headers = headers


def make_unauthorized(error: str = "unauthorized", hint: str | None = "log in with `POST /auth/login`") -> HttpError:
    return HttpError(401, error, hint=hint, headers=CHALLENGE)


def make_run_process_refused() -> HttpError:
    # It is the owner's process too, and may not decide in the owner's name about its own actions.
    return HttpError(403, "a process of a run may not do this", hint="ask a person to do it")


def make_unattributed() -> HttpError:
    return HttpError(
        403, "the process at the other end cannot be attributed", hint="connect again, and stay until you are answered"
    )


def make_unknown_run() -> HttpError:
    return HttpError(404, errors.UNKNOWN_RUN)


def make_unknown_host() -> HttpError:
    return HttpError(404, errors.UNKNOWN_HOST, hint="`tower hosts` shows them")


def make_body_too_large(limit: int) -> HttpError:
    return HttpError(413, f"the body is longer than {limit} bytes", headers=_CLOSE)


def make_body_timeout() -> HttpError:
    return HttpError(408, "the body did not come in time", headers=_CLOSE)


def make_internal_error() -> HttpError:
    return HttpError(500, errors.INTERNAL)


def convert_failure(failure: Exception) -> HttpError | None:
    """Returns None for an exception that is not a refusal."""
    match failure:
        case HttpError():
            return failure
        case errors.HostOffline():
            return HttpError(502, failure.text)
        case errors.RelayError():
            return HttpError(_STATUS.get(failure.text, DEFAULT_STATUS), failure.text)
        case core_errors.RoleForbidden():
            return HttpError(403, failure.message)
        case core_errors.CoreError():
            return convert_failure(errors.RelayError(errors.convert_core_error(failure)))
        case registry.RegistryUnavailable():
            return HttpError(503, failure.message, hint=failure.hint)
        case _:
            return None


_encode = msgspec.json.Encoder().encode


def make_response(answer: Any) -> Any:
    """Returns a response unchanged, None as 204, and anything else as JSON."""
    if answer is None:
        return Response(status_code=204)
    if isinstance(answer, Response) or callable(answer):
        return answer
    return make_json_response(answer)


def make_json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(value), status, headers, "application/json")


def make_error_response(found: HttpError) -> Response:
    said = {"error": found.error} if found.hint is None else {"error": found.error, "hint": found.hint}
    return make_json_response(said, found.status, found.headers)
