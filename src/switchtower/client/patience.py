"""Tries again while the daemon is away: it may be restarting. Gives up with the last reason when patience ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from switchtower.client import errors

RECONNECT_TIMEOUT = 15.0
"""Seconds that a lost daemon may take to come back."""

Result = TypeVar("Result")


async def retry_while_away(attempt: Callable[[], Awaitable[Result]], *, timeout: float, retry_refusals: bool = False) -> Result:
    """`retry_refusals`: also when the daemon answers that the request may be tried again."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout
    pause = 0.01
    while True:
        try:
            return await attempt()
        except (errors.DaemonUnreachable, errors.ConnectionLost, errors.RequestFailed) as problem:
            if isinstance(problem, errors.RequestFailed) and not (retry_refusals and problem.retryable):
                raise
            if clock() + pause > deadline:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.5)
