"""What handlers return, as responses. Everything that is not a stream or a page is JSON."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from switchtower.protocols.relay.http.problems import HttpError

_encode = msgspec.json.Encoder().encode


def make_response(answer: Any) -> Any:
    """A response as it is; nothing as 204; anything else as JSON."""
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
