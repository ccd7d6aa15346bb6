"""ASGI apps that need no loading: the health page of a port for WebSockets, `/link` of the host's own socket, and `LazyApp`.

`/link` shows the status of the link to the hub; all other paths are passed to the app behind it. It loads nothing: a daemon
without a hub answers it without loading relay. `LazyApp` is made at its first request: the HTTP port is open before its pages are
loaded.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from switchtower.settings.sources import ConfigError

_JSON = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


async def serve_health(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        raise RuntimeError("this app has nothing to begin or to end")  # the reply that ASGI expects
    found = scope["path"] == "/healthz" and scope["method"] in ("GET", "HEAD")
    await send({"type": "http.response.start", "status": 200 if found else 404, "headers": _JSON})
    await send({"type": "http.response.body", "body": b'{"ok":true}' if found else b'{"error":"not found"}'})


PATH = "/link"
_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


class LinkPage:
    def __init__(self, pages: Any, get_status: Callable[[], dict[str, Any]]) -> None:
        self._pages = pages
        self._get_status = get_status

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "GET" or _is_page(scope):
            await self._pages(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": msgspec.json.encode(self._get_status())})


def _is_page(scope: Any) -> bool:
    """The app behind it refuses pages of browsers."""
    return any(name == b"origin" for name, _ in scope["headers"])


log = logging.getLogger(__name__)

Make = Callable[[], Awaitable[Any]]


class LazyApp:
    def __init__(self, make: Make) -> None:
        self._make = make
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise RuntimeError("this app has nothing to begin or to end")  # the reply that ASGI expects
        if self._app is None:
            try:
                self._app = await self._make()
            except ConfigError as problem:
                # A setting was valid at the start of the daemon and no longer is, such as a file that was changed since.
                log.error("the HTTP port cannot serve its pages: %s", problem)
                await _answer_unavailable(send, f"a setting cannot be used: `{problem.setting}`; the log has the remedy")
                return
        await self._app(scope, receive, send)


async def _answer_unavailable(send: Any, reason: str) -> None:
    """Answers in the form of `/readyz`, whichever page was requested."""
    body = msgspec.json.encode({"ready": False, "reasons": [reason]})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
