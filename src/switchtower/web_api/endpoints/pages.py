"""Serves the page at all paths that are not endpoints: it has its own routing, and needs no token.

Only files in the page's folder are served, by the very paths that they have there: no part of a request is ever made into the
name of a file.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from switchtower.web_api import responses
from switchtower.web_api.endpoints import page_files

READ_METHODS = ("GET", "HEAD")
ENDPOINTS = ("/api", "/auth", "/metrics", "/ws")
"""Unknown paths below these are not found; the page has no routes there."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; object-src 'none'; form-action 'self'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
CACHE_FOREVER = "public, max-age=31536000, immutable"
CACHE_REVALIDATE = "no-cache"

_NOT_BUILT_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Switchtower</title>
<h1>The daemon runs, but its page was not built</h1>
<p>In a clone, <code>make web</code> builds it (it needs Node); it is served at once. An installed wheel contains it.</p>
<p>All else works without it: <code>tower</code> opens the terminal UI, <code>tower --help</code> lists the commands.</p>
</html>
"""


async def respond_not_found(scope: Any, receive: Any, send: Any) -> None:
    """Answers for a daemon without a page."""
    response = PlainTextResponse("Nothing is here.\n", 404) if scope["method"] in READ_METHODS else _make_not_found()
    await response(scope, receive, send)


class PageApp:
    def __init__(self, files: page_files.PageFiles, visit: Callable[[Request], Awaitable[Response | None]]) -> None:
        """`visit` answers a request with a token in the address; it returns None for an invalid one, and then the page reports
        it."""
        self._files = files
        self._visit = visit

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive, send)
        await (await self._respond(request))(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        path = request.scope["path"]
        if request.method not in READ_METHODS or _is_endpoint_path(path):
            return _make_not_found()
        if path == "/" and request.method == "GET" and (welcome := await self._visit(request)) is not None:
            return welcome
        codings = _read_accepted_codings(request.headers)
        served = await asyncio.to_thread(self._files.find, path, codings)
        if served is None and "." in path and path != page_files.INDEX:
            return _make_not_found()
        if served is None:
            path = page_files.INDEX
            served = await asyncio.to_thread(self._files.find, path, codings)
        if served is None:
            return HTMLResponse(_NOT_BUILT_PAGE, 404, {**HEADERS, "Cache-Control": CACHE_REVALIDATE})
        return _make_file_response(request.headers, path, served)


def _make_file_response(headers: Headers, path: str, served: page_files.PageFile) -> Response:
    said = {
        **HEADERS,
        "Cache-Control": CACHE_FOREVER if path.startswith(page_files.ASSETS) else CACHE_REVALIDATE,
        "ETag": served.etag,
        "Vary": "Accept-Encoding",
    }
    if served.etag in (tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=said)
    if served.coding:
        said["Content-Encoding"] = served.coding
    return Response(served.content, headers={**said, "Content-Type": served.type})


def _read_accepted_codings(headers: Headers) -> frozenset[str]:
    """Returns the codings that the client accepts."""
    taken = set()
    for part in headers.get("accept-encoding", "").split(","):
        coding, _, quality = part.strip().partition(";")
        if quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000"):
            taken.add(coding.strip().lower())
    return frozenset(taken)


def _is_endpoint_path(path: str) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in ENDPOINTS)


def _make_not_found() -> Response:
    return responses.make_error_response(responses.HttpError(404, "not found"))
