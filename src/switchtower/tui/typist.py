"""Keys on their way to a program: in order, and those that wait go together."""

import asyncio
from collections.abc import Awaitable, Callable

from switchtower.client import errors

MOST_QUEUED = 64 * 1024


class KeySender:
    def __init__(self, send: Callable[[str, str], Awaitable[None]], on_problem: Callable[[errors.ClientError], None]) -> None:
        self._send = send
        self._on_problem = on_problem
        self._queue: list[tuple[str, str]] = []
        self._task: asyncio.Task[None] | None = None

    def enqueue(self, session_id: str, keys: str) -> None:
        if sum(len(waiting) for _, waiting in self._queue) + len(keys) > MOST_QUEUED:
            return  # nobody reads it at the other end
        self._queue.append((session_id, keys))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_queued())

    async def _send_queued(self) -> None:
        while self._queue:
            session_id = self._queue[0][0]
            count = next((at for at, (other, _) in enumerate(self._queue) if other != session_id), len(self._queue))
            keys = "".join(typed for _, typed in self._queue[:count])
            del self._queue[:count]
            try:
                await self._send(session_id, keys)
            except errors.ClientError as problem:
                self._on_problem(problem)
