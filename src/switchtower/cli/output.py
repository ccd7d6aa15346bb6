"""Owns stdout: only data goes out here, as UTF-8 bytes, and nobody else writes there.

On a terminal the text of an answer is kept from steering it; into a pipe or a file it goes unchanged.
"""

import os
import sys
from collections.abc import Callable


class OutputClosed(Exception):
    """stdout was closed by its reader."""


_middle_of_line = False


def write(data: bytes) -> None:
    """Whole or not at all, and at once: a reader on a pipe sees each piece when it happens."""
    try:
        rest = memoryview(data)
        while rest:  # with PYTHONUNBUFFERED a write may end half-way
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _discard_the_rest()
        raise OutputClosed from None


def write_line(data: bytes | str) -> None:
    write((data.encode(errors="replace") if isinstance(data, str) else data) + b"\n")


def write_answer(text: str) -> None:
    """A piece of streamed text."""
    if is_terminal():
        text = "".join(c if (c >= " " and c != "\x7f" and not "\x80" <= c < "\xa0") or c in "\n\t" else "\ufffd" for c in text)
    write_piece(text)


def write_piece(text: str, decorate: Callable[[str], str] = str) -> None:
    """A part of a text that comes bit by bit, as it is. Line ends at its end stay outside of what decorates it."""
    global _middle_of_line
    if not text:
        return
    body = text.rstrip("\n")
    _middle_of_line = body == text
    write(((decorate(body) if body else "") + text[len(body) :]).encode(errors="replace"))


def end_answer() -> None:
    """An answer ends with its line."""
    global _middle_of_line
    if _middle_of_line:
        _middle_of_line = False
        write(b"\n")


def end_terminal_line() -> None:
    """On a terminal that shows both streams, what people read starts on a line of its own."""
    if _middle_of_line and is_terminal() and os.isatty(2):
        end_answer()


def is_terminal() -> bool:
    return os.isatty(1)


def flush() -> bool:
    """Whether everything reached its reader."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_the_rest()
        return False
    return True


def _discard_the_rest() -> None:
    # What is still buffered would fail again, noisily, when the interpreter closes stdout.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
