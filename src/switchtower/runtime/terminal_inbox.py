"""What waits to be taken by the engine of a terminal run: typing and new sizes, in the order they were committed."""

import asyncio

from switchtower.core import engine


class TerminalInbox:
    def __init__(self) -> None:
        # Bounded by who writes: the lane takes only so many commands at a time, and each was answered before it came here.
        self._waiting: asyncio.Queue[engine.Typed | engine.Resized] = asyncio.Queue()
        self._hurry = asyncio.Event()
        self.exit_code: int | None = None

    def take(self, item: engine.Typed | engine.Resized) -> None:
        self._waiting.put_nowait(item)

    async def next(self) -> engine.Typed | engine.Resized:
        return await self._waiting.get()

    def hurry(self) -> None:
        self._hurry.set()

    async def hurried(self) -> None:
        await self._hurry.wait()
