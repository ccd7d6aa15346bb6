"""Ctrl-C and its relatives, as something a coroutine can wait for. A second one leaves at once."""

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
    """Somebody asked this process to stop."""


@contextmanager
def catch_interrupts(on_second: Callable[[], None] = lambda: None) -> Iterator[asyncio.Event]:
    """Set by the first signal that asks this process to stop. `at_once` is done before the second one ends it."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def ask() -> None:
        if asked.is_set():
            on_second()
            os._exit(ExitStatus.CANCELLED)
        asked.set()

    # What `nohup` or a shell's background has told us to ignore stays ignored.
    heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heeded:
        loop.add_signal_handler(number, ask)
    try:
        yield asked
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


async def run_unless_interrupted(interrupted: asyncio.Event, work: Coroutine[Any, Any, Result]) -> Result:
    """What the work comes to. Raises `Interrupted` when that was asked for first."""
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
