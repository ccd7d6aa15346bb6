"""Atomic file writes: the previous file stays until the new content has been written completely."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def open_atomic(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """Opens a temporary file that replaces `path` when the block exits without an error. Raises `OSError`.

    Without a `mode` the file gets the default mode of new files. A symbolic link stays, and its target is replaced; a path that
    is not a regular file, such as a pipe, is written to directly.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as device:
            yield device
        return
    place = path.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=place.parent, prefix=".tower-")
    temporary = Path(name)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, 0o666 & ~_read_umask() if mode is None else mode)
            yield file
            file.flush()
            os.fsync(fd)
        temporary.replace(place)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_atomic(path: Path, content: bytes, *, mode: int | None = None) -> None:
    with open_atomic(path, mode=mode) as file:
        file.write(content)


def _read_umask() -> int:
    """Returns the umask. The only way to read it is to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
