"""Serves the page at all paths that are not endpoints: it has its own routing, and needs no token.

Only files in the page's folder are served, by the very paths that they have there: no part of a request is ever made into the
name of a file.

The files of the built page: their paths, types and compressed variants. It reads a folder and opens no socket."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from switchtower.web_api import responses

INDEX = "/index.html"
ASSETS = "/assets/"
"""Names in this folder change with their content."""
RESCAN_INTERVAL = 1.0
MAX_FILE_BYTES = 32 * 1_048_576
TYPES = MappingProxyType(
    {
        ".css": "text/css; charset=utf-8",
        ".html": "text/html; charset=utf-8",
        ".ico": "image/x-icon",
        ".js": "text/javascript; charset=utf-8",
        ".json": "application/json",
        ".map": "application/json",
        ".mjs": "text/javascript; charset=utf-8",
        ".png": "image/png",
        ".svg": "image/svg+xml",
        ".txt": "text/plain; charset=utf-8",
        ".wasm": "application/wasm",
        ".webmanifest": "application/manifest+json",
        ".webp": "image/webp",
        ".woff2": "font/woff2",
    }
)
COMPRESSED_SUFFIXES = MappingProxyType({"br": ".br", "gzip": ".gz"})
"""Content codings in our order of preference, with their file suffixes."""
IDENTITY = ""


class PageFile(Struct, frozen=True):
    content: bytes
    type: str
    etag: str
    coding: str


class PageFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index_version: tuple[int, int] | None = None
        self._scanned_at = 0.0
        self._files: dict[str, dict[str, Path]] = {}
        """Per path of the address: the file in each coding."""

    def find(self, path: str, codings: frozenset[str]) -> PageFile | None:
        """Returns None when the file does not exist. A page that was rebuilt is found, too."""
        self._rescan()
        twins = self._files.get(path)
        if twins is None and "." in path and self._index_version and time.monotonic() - self._scanned_at > RESCAN_INTERVAL:
            self._index_version = None  # the rest of a page that is being built may have been written after its first file
            self._rescan()
            twins = self._files.get(path)
        if twins is None:
            return None
        coding = next((coding for coding in COMPRESSED_SUFFIXES if coding in codings and coding in twins), IDENTITY)
        file = twins[coding]
        try:
            content = file.read_bytes()
        except OSError:
            self._index_version = None  # it is being rebuilt
            return None
        suffix = Path(path).suffix.lower()
        return PageFile(content, TYPES.get(suffix, "application/octet-stream"), _make_etag(content), coding)

    def _rescan(self) -> None:
        try:
            index = (self._folder / INDEX[1:]).stat()
        except OSError:
            self._index_version, self._files = None, {}
            return
        seen = (index.st_mtime_ns, index.st_ino)
        if seen != self._index_version:
            self._files = _list_files(self._folder)
            self._index_version, self._scanned_at = seen, time.monotonic()


def _make_etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _list_files(folder: Path) -> dict[str, dict[str, Path]]:
    names = {
        "/" + file.relative_to(folder).as_posix(): file
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.is_symlink() and not _is_hidden(file, folder) and file.stat().st_size <= MAX_FILE_BYTES
    }
    found: dict[str, dict[str, Path]] = {}
    for name, file in names.items():
        if not name.endswith(tuple(COMPRESSED_SUFFIXES.values())):
            twins = {coding: names[name + end] for coding, end in COMPRESSED_SUFFIXES.items() if name + end in names}
            found[name] = {IDENTITY: file, **twins}
    return found


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


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
    def __init__(self, files: PageFiles, visit: Callable[[Request], Awaitable[Response | None]]) -> None:
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
        if served is None and "." in path and path != INDEX:
            return _make_not_found()
        if served is None:
            path = INDEX
            served = await asyncio.to_thread(self._files.find, path, codings)
        if served is None:
            return HTMLResponse(_NOT_BUILT_PAGE, 404, {**HEADERS, "Cache-Control": CACHE_REVALIDATE})
        return _make_file_response(request.headers, path, served)


def _make_file_response(headers: Headers, path: str, served: PageFile) -> Response:
    said = {
        **HEADERS,
        "Cache-Control": CACHE_FOREVER if path.startswith(ASSETS) else CACHE_REVALIDATE,
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
