"""An ASGI app that is made when it is first asked for something: the HTTP port is open before its pages are loaded."""

from collections.abc import Awaitable, Callable
from typing import Any

Make = Callable[[], Awaitable[Any]]


class LateApp:
    def __init__(self, make: Make) -> None:
        self._make = make
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise RuntimeError("this app has nothing to begin or to end")  # as ASGI wants it said
        if self._app is None:
            self._app = await self._make()
        await self._app(scope, receive, send)
