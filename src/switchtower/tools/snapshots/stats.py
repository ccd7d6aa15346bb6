"""What a file looked like from outside when its content was last taken down. One that still looks the same is not read again.

A file that changed just before it was read is not remembered: a second change in the same tick of the clock would not show.
"""

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec

_TICK_NS = 1_000_000_000
_THIS_PROCESS = uuid4().hex

StatusSummary = tuple[int, int, int, int, int]
"""Size, times of change of content and of the rest, inode, mode."""


def summarize_status(status: os.stat_result) -> StatusSummary:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode)


def is_settled(status: os.stat_result, now_ns: int) -> bool:
    return max(status.st_mtime_ns, status.st_ctime_ns) < now_ns - _TICK_NS


class KnownFileStats(msgspec.Struct):
    """The files of one workspace as last seen, by path."""

    algorithm: str
    files: dict[str, tuple[StatusSummary, str]]
    judged_by: str = _THIS_PROCESS
    """Who found that none of them holds secrets: the rules for that may have become others since."""

    @property
    def has_current_secret_rules(self) -> bool:
        return self.judged_by == _THIS_PROCESS


def load_known(path: Path, algorithm: str) -> KnownFileStats:
    """Empty when there is none, or none that can be used."""
    with suppress(OSError, msgspec.DecodeError, ValueError):
        known = msgspec.msgpack.decode(path.read_bytes(), type=KnownFileStats)
        if known.algorithm == algorithm:
            return known
    return KnownFileStats(algorithm, {})


def save_known(path: Path, known: KnownFileStats) -> None:
    encodable = {name: file for name, file in known.files.items() if name.isascii() or _is_text(name)}
    beside = path.with_name(f"{path.name}.new")
    try:
        beside.write_bytes(msgspec.msgpack.encode(KnownFileStats(known.algorithm, encodable)))
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)


def _is_text(name: str) -> bool:
    """A name can hold bytes that are no text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
