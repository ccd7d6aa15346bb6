"""Blocking work on a thread that comes to an end: what takes too long is stopped and counts as unavailable."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from switchtower.tools.git.plumbing.unavailable import GitUnavailable
from switchtower.tools.running import leash

T = TypeVar("T")

_END_TIMEOUT = 5.0
"""For the work to notice that it was stopped: nobody else may touch the workspace while it still does."""


async def run_with_timeout(seconds: float, work: Callable[[leash.CancelScope], T], *, run_id: str | None = None, hint: str) -> T:
    """Cancelled or out of time, the work is stopped before this raises."""
    try:
        async with asyncio.timeout(seconds) as clock:
            return await leash.run_in_cancel_scope(run_id, work, timeout_s=_END_TIMEOUT)
    except TimeoutError:
        if not clock.expired():
            raise
        raise GitUnavailable(f"it took longer than {seconds:g} seconds", hint=hint) from None
