"""The page `/link` of the host's own socket: how the link to the hub stands. All else is for the pages behind it.

It loads nothing: a daemon that dials no hub says so without ever having heard of relay.
"""

from collections.abc import Callable
from typing import Any

import msgspec

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
    """The pages behind refuse those of browsers."""
    return any(name == b"origin" for name, _ in scope["headers"])
