"""Blocking work beside the event loop, and cleanup under cancellation. Each blocking call has its own daemon thread: a call that
hangs on a dead disk delays neither other work nor the end of the daemon.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns the work's result. When this is cancelled, the work continues and its result is lost."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def act() -> None:
        try:
            tell = partial(_set_result, done, work(*args, **kwargs))
        except BaseException as error:
            tell = partial(_set_exception, done, error)
        with suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=act, name="tower-tool", daemon=True).start()
    return await done


def _set_result(done: asyncio.Future[T], result: T) -> None:
    if not done.done():
        done.set_result(result)


def _set_exception(done: asyncio.Future[T], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)


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
            task.exception()  # retrieved, so that asyncio does not report it as never retrieved
        raise asyncio.CancelledError
    return task.result()


async def run_in_detached_thread(work: Callable[[], T], name: str) -> T:
    """Returns or raises what the work does. When this is cancelled, the work continues by itself."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, problem: BaseException | None) -> None:
        if answer.done():
            return
        if problem is not None:
            answer.set_exception(problem)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, problem = None, None
        try:
            result = work()
        except BaseException as raised:
            problem = raised
        with contextlib.suppress(RuntimeError):  # the loop has closed: no task waits
            loop.call_soon_threadsafe(settle, result, problem)

    Thread(target=run, name=name, daemon=True).start()
    return await answer
