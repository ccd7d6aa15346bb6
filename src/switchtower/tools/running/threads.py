"""Blocking work beside the event loop. Each call has a thread of its own, which nobody has to wait for: one that hangs on
a dead disk holds up neither the work of others nor the daemon's end.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The work's result. When this is cancelled, the work goes on by itself and its result is lost."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def act() -> None:
        try:
            tell = partial(_set_result, done, work(*args, **kwargs))
        except BaseException as error:
            tell = partial(_set_exception, done, error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=act, name="tower-tool", daemon=True).start()
    return await done


def _set_result(done: asyncio.Future[T], result: T) -> None:
    if not done.done():
        done.set_result(result)


def _set_exception(done: asyncio.Future[T], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
