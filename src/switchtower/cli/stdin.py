"""Bytes from stdin as they come: from a terminal, a pipe or a file. One reader at a time."""

import asyncio
import os

_READ_BYTES = 4 * 1024
"""A terminal's own measure: a program's takes no more at once."""


async def read_stdin(timeout: float | None = None) -> bytes | None:
    """What is there next; empty at the end, and None when nothing came in time."""
    loop = asyncio.get_running_loop()
    there = asyncio.Event()
    try:
        loop.add_reader(0, there.set)
    except (PermissionError, FileExistsError):
        return _read_available()  # a file, which is never waited for
    except (OSError, ValueError):
        return b""  # closed
    try:
        async with asyncio.timeout(timeout):
            await there.wait()
    except TimeoutError:
        return None
    finally:
        loop.remove_reader(0)
    return _read_available()


def _read_available() -> bytes:
    try:
        return os.read(0, _READ_BYTES)
    except OSError:  # the terminal has gone
        return b""
