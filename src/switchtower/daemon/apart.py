"""Work that may hang, in a thread that nobody has to wait for: not who asked for it, and not the daemon when it ends."""

import asyncio
import contextlib
from collections.abc import Callable
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


async def run_in_detached_thread(work: Callable[[], T], name: str) -> T:
    """What the work returns or raises. Who stops waiting leaves it to itself."""
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
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits
            loop.call_soon_threadsafe(settle, result, problem)

    Thread(target=run, name=name, daemon=True).start()
    return await answer
