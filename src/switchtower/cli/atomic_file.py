"""Files that are written whole or not at all. What stood there before stays until everything is on its way to the disk."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def open_atomic(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """A file to write to, which takes its name when the block is left well. Raises OSError.

    Without a `mode` it has the one that any new file has here. A link stays a link, and its file is replaced; what is no file,
    such as a pipe, is written to as it is.
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
    """There is no way to ask for it but to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
