"""Turns Ctrl-C and similar signals into an event that a coroutine can await. A second signal exits at once."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from switchtower.cli.console import ExitStatus

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Result = TypeVar("Result")


class Interrupted(Exception):
    """The process received a signal to stop."""


@contextmanager
def catch_interrupts(on_second: Callable[[], None] = lambda: None) -> Iterator[asyncio.Event]:
    """Yields an event that is set by the first stop signal. `on_second` runs before the second one ends the process."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def ask() -> None:
        if asked.is_set():
            on_second()
            os._exit(ExitStatus.CANCELLED)
        asked.set()

    # Signals that `nohup` or a background shell made us ignore stay ignored.
    heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heeded:
        loop.add_signal_handler(number, ask)
    try:
        yield asked
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


async def run_unless_interrupted(interrupted: asyncio.Event, work: Coroutine[Any, Any, Result]) -> Result:
    """Returns the result of the work. Raises `Interrupted` when a stop signal arrives first."""
    task = asyncio.create_task(work)
    asked = asyncio.create_task(interrupted.wait())
    try:
        await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Interrupted
        return task.result()
    finally:
        task.cancel()
        asked.cancel()
