"""Owns stdout: it writes only data, as UTF-8 bytes, and no other module writes there.

On a terminal, control characters in an answer are replaced; a pipe or a file gets the text unchanged.
"""

import os
import sys
from collections.abc import Callable


class OutputClosed(Exception):
    """The reader closed stdout."""


_middle_of_line = False


def write(data: bytes) -> None:
    """Writes all of the data and flushes it, so that a reader on a pipe sees each piece when it happens."""
    try:
        rest = memoryview(data)
        while rest:  # with PYTHONUNBUFFERED a write may be partial
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _discard_the_rest()
        raise OutputClosed from None


def write_line(data: bytes | str) -> None:
    write((data.encode(errors="replace") if isinstance(data, str) else data) + b"\n")


def write_answer(text: str) -> None:
    """Writes a piece of streamed text."""
    if is_terminal():
        text = "".join(c if (c >= " " and c != "\x7f" and not "\x80" <= c < "\xa0") or c in "\n\t" else "\ufffd" for c in text)
    write_piece(text)


def write_piece(text: str, decorate: Callable[[str], str] = str) -> None:
    """Writes a piece of streamed text unchanged. Trailing newlines stay outside of the decoration."""
    global _middle_of_line
    if not text:
        return
    body = text.rstrip("\n")
    _middle_of_line = body == text
    write(((decorate(body) if body else "") + text[len(body) :]).encode(errors="replace"))


def end_answer() -> None:
    """Ends the answer's last line with a newline."""
    global _middle_of_line
    if _middle_of_line:
        _middle_of_line = False
        write(b"\n")


def end_terminal_line() -> None:
    """Starts a new line if the same terminal shows both streams, so that messages do not join the answer."""
    if _middle_of_line and is_terminal() and os.isatty(2):
        end_answer()


def is_terminal() -> bool:
    return os.isatty(1)


def flush() -> bool:
    """Flushes stdout and returns whether the reader received everything."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_the_rest()
        return False
    return True


def _discard_the_rest() -> None:
    # Buffered data would fail again, with a noisy error, when the interpreter closes stdout.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
