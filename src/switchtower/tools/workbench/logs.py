"""Reads the end of the daemon's own log, and no more of it than is asked for."""

import os
import stat

from msgspec import Struct

from switchtower.tools.running import threads
from switchtower.tools.workbench import refusals

MOST_LINES = 2000
MOST_BYTES = 2_000_000


class LogTail(Struct, frozen=True):
    path: str
    text: str
    truncated: bool
    """The file has more bytes than were read."""


async def read_log_tail(path: str | None, lines: int = 200, max_bytes: int = 200_000) -> LogTail:
    """What is asked for beyond the limits is brought back to them."""
    if path is None:
        raise refusals.OperationRefused("HOSTD_LOG_PATH is not set")
    return await threads.run_in_thread(_read_tail, path, min(max(lines, 1), MOST_LINES), min(max(max_bytes, 1), MOST_BYTES))


def _read_tail(path: str, lines: int, max_bytes: int) -> LogTail:
    with refusals.translate_errors():
        # Not to wait for the other end of a pipe.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise refusals.OperationRefused(refusals.NOT_REGULAR)
            start = max(status.st_size - max_bytes, 0)
            end = os.pread(file, max_bytes, start)
            begins_a_line = start == 0 or os.pread(file, 1, start - 1) == b"\n"
        finally:
            os.close(file)
    if not begins_a_line and b"\n" in end[:-1]:
        end = end.partition(b"\n")[2]
    # Split by hand: a carriage return ends no line here.
    ending = b"\n" if end.endswith(b"\n") else b""
    last = b"\n".join(end.removesuffix(b"\n").split(b"\n")[-lines:]) + ending
    return LogTail(path, last.decode(errors="replace"), start > 0)
