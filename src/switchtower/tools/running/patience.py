"""Cleaning up under cancellation. What must be finished is finished, and then the cancellation goes on."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Awaits the work however often this task is cancelled meanwhile; a cancellation is raised afterwards, not lost."""
    task = asyncio.create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        if not task.cancelled():
            task.exception()  # seen, so that asyncio does not report it as forgotten
        raise asyncio.CancelledError
    return task.result()
