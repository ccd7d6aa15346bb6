"""Files for the owner's eyes only. Only the holder of the home's lock writes them."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Whole or not at all, and for the owner's eyes only from the first byte."""
    # Only the holder of the lock writes, so one name will do; what a killed daemon left of it is written over.
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    temporary.replace(path)


def read_or_create_private(path: Path, make: Callable[[], str]) -> str:
    """The text that is there; else a new one, which is there from now on."""
    with contextlib.suppress(FileNotFoundError):
        if kept := path.read_text().strip():
            return kept
    made = make()
    write_private(path, made.encode())
    return made
