"""The SQLite journal as the monitor sees it: whether its file can be written, what is in it by state, how large it is. It never
reads entries."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from switchtower.stores import sqlite_counts
from switchtower.stores.sqlite_audit import SqliteAudit

MIN_FREE_BYTES = 16 * 1_048_576


class SqliteStoreStatus:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.decisions = SqliteAudit(path)

    def list_unready_reasons(self) -> list[str]:
        reasons = []
        try:
            if not os.access(self._path, os.W_OK):
                reasons.append("the journal's file cannot be written")
            free = os.statvfs(self._path.parent)
            if free.f_bavail * free.f_frsize < MIN_FREE_BYTES:
                reasons.append("the journal's disk is full")
        except OSError:
            reasons.append("the journal's folder is gone")
        return reasons

    async def count_states(self) -> Mapping[str, int]:
        """Raises `JournalUnavailable`."""
        return await asyncio.to_thread(sqlite_counts.count_states, self._path)

    async def measure_size(self) -> int:
        """In bytes, with its log."""
        return sum(map(_measure_file, (self._path, self._path.with_name(f"{self._path.name}-wal"))))


def _measure_file(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
