"""What waits to be taken by the engine of a terminal run: typing and new sizes, in the order they were committed."""

import asyncio

from switchtower.core import engine

MOST_CHARS = 4 * 1024 * 1024
"""Of typing that a program has not taken: beyond that, nobody's is accepted."""


class TerminalInputQueue:
    def __init__(self) -> None:
        self._waiting: asyncio.Queue[engine.TypedText | engine.ResizedScreen] = asyncio.Queue()
        self._chars = 0
        self._hurry = asyncio.Event()
        self.exit_code: int | None = None

    @property
    def is_full(self) -> bool:
        return self._chars >= MOST_CHARS

    def put(self, item: engine.TypedText | engine.ResizedScreen) -> None:
        self._waiting.put_nowait(item)
        if isinstance(item, engine.TypedText):
            self._chars += len(item.text)

    async def next(self) -> engine.TypedText | engine.ResizedScreen:
        item = await self._waiting.get()
        if isinstance(item, engine.TypedText):
            self._chars -= len(item.text)
        return item

    def force_end(self) -> None:
        self._hurry.set()

    async def wait_for_force(self) -> None:
        await self._hurry.wait()
