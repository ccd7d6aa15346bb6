"""Ctrl-C as the cancelling of a run. Takes the signals of the process, so it is for a command line and not for a daemon."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def as_cancel() -> Iterator[asyncio.Event]:
    """The event is set at the first Ctrl-C. A second one is an ordinary interruption again, for who will not wait."""
    loop = asyncio.get_running_loop()
    cancel = asyncio.Event()
    ordinary = {number: signal.getsignal(number) for number in _SIGNALS}

    def give_back() -> None:
        for number, handler in ordinary.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)

    def interrupt() -> None:
        give_back()
        cancel.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupt)
    try:
        yield cancel
    finally:
        if not cancel.is_set():
            give_back()
