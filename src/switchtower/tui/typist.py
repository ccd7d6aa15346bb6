"""Keys on their way to a program: in order, and those that wait go together."""

import asyncio
from collections.abc import Awaitable, Callable

from switchtower.client import errors

MOST_WAITING = 64 * 1024


class Typist:
    def __init__(self, send: Callable[[str, str], Awaitable[None]], on_problem: Callable[[errors.ClientError], None]) -> None:
        self._send = send
        self._on_problem = on_problem
        self._waiting: list[tuple[str, str]] = []
        self._task: asyncio.Task[None] | None = None

    def type(self, session_id: str, keys: str) -> None:
        if sum(len(waiting) for _, waiting in self._waiting) + len(keys) > MOST_WAITING:
            return  # nobody reads it at the other end
        self._waiting.append((session_id, keys))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._pass_on())

    async def _pass_on(self) -> None:
        while self._waiting:
            session_id = self._waiting[0][0]
            count = next((at for at, (other, _) in enumerate(self._waiting) if other != session_id), len(self._waiting))
            keys = "".join(typed for _, typed in self._waiting[:count])
            del self._waiting[:count]
            try:
                await self._send(session_id, keys)
            except errors.ClientError as problem:
                self._on_problem(problem)
