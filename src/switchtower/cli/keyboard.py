"""Lines from the person at the terminal. Prints nothing but what it asks with."""

import asyncio
import os
import termios
from contextlib import suppress

from switchtower.cli import console


def is_interactive() -> bool:
    return os.isatty(0) and os.isatty(2)


def discard_typeahead() -> None:
    """What was typed before a question was there is no answer to it."""
    with suppress(termios.error):
        termios.tcflush(0, termios.TCIFLUSH)


async def read_line(prompt: str) -> str | None:
    """A terminal hands over whole lines. None is its end: Ctrl-D, or nobody there any more."""
    console.print_piece(prompt)
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        if arrived.done():
            return
        try:
            arrived.set_result(os.read(0, 4_096))
        except OSError:  # the terminal has gone
            arrived.set_result(b"")

    loop.add_reader(0, read)
    try:
        typed = await arrived
    except asyncio.CancelledError:
        # Half an answer to what is not asked any more must not become the beginning of another.
        discard_typeahead()
        raise
    finally:
        loop.remove_reader(0)
    if typed.endswith(b"\n"):
        console.mark_line_ended()
    return typed.decode(errors="replace").removesuffix("\n") if typed else None
