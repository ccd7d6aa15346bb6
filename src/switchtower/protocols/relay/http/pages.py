"""Everything that is no endpoint is the page's: it finds its own way from any path. The page comes in here."""

from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse

from switchtower.protocols.relay.http import answers, problems


async def fallback(scope: Any, receive: Any, send: Any) -> None:
    request = Request(scope, receive, send)
    response = _page() if request.method in ("GET", "HEAD") else answers.problem(problems.Problem(404, "not found"))
    await response(scope, receive, send)


def _page() -> PlainTextResponse:
    return PlainTextResponse("Nothing is here: this version was built without its page.\n", 404)
