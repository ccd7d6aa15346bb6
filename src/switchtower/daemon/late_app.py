"""An ASGI app that is made when it is first asked for something: the HTTP port is open before its pages are loaded."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from switchtower import config

log = logging.getLogger(__name__)

Make = Callable[[], Awaitable[Any]]


class LazyApp:
    def __init__(self, make: Make) -> None:
        self._make = make
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise RuntimeError("this app has nothing to begin or to end")  # as ASGI wants it said
        if self._app is None:
            try:
                self._app = await self._make()
            except config.ConfigError as problem:
                # What was fine at the start of the daemon and no longer is, such as a file that was changed since.
                log.error("the HTTP port cannot serve its pages: %s", problem)
                await _answer_unavailable(send, f"a setting cannot be used: `{problem.setting}`; the log has the remedy")
                return
        await self._app(scope, receive, send)


async def _answer_unavailable(send: Any, reason: str) -> None:
    """In the form of `/readyz`, whichever page was asked for."""
    body = msgspec.json.encode({"ready": False, "reasons": [reason]})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
