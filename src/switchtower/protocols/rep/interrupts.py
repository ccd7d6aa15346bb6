"""Ctrl-C as the cancelling of a run. Takes the signals of the process, so it is for a command line and not for a daemon."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def cancel_on_interrupt() -> Iterator[asyncio.Event]:
    """The event is set at the first Ctrl-C. A second one cancels the task that is in here, for who will not wait. The signals
    are given back only behind it: one that ended the process at once would leave a runtime behind."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    cancel = asyncio.Event()
    ordinary = {number: signal.getsignal(number) for number in _SIGNALS}

    def interrupt() -> None:
        if cancel.is_set():
            task.cancel()
        cancel.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupt)
    try:
        yield cancel
    finally:
        for number, handler in ordinary.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
