"""Files that only the owner can read. Only the daemon that holds the home folder's lock writes them."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Writes the file atomically; it is private to the owner from the first byte."""
    # Only the holder of the lock writes, so one temporary name is enough; the leftover of a killed daemon is overwritten.
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    temporary.replace(path)


def read_or_create_private(path: Path, make: Callable[[], str]) -> str:
    """Returns the file's text; creates the file when it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        if kept := path.read_text().strip():
            return kept
    made = make()
    write_private(path, made.encode())
    return made
