"""Inserts of many rows in one statement.

`executemany` gives the interpreter lock away once a row, and beside a busy event loop each time costs a wait to get it
back. One statement for many rows gives it away once. Every length has its own SQL text, so that SQLite's compiled
statements are found again.

A row that breaks a constraint ends the whole transaction (`OR ROLLBACK`): SQLite then need not keep a copy of every page
that the statement touches, in case it had to be undone alone.
"""

from collections.abc import Iterator
from typing import Any

_LONG = 256
_EXACT = 64


class BulkInsert:
    def __init__(self, into: str, *columns: str, conflict: str = "") -> None:
        self.width = len(columns)
        self._head = f"INSERT OR ROLLBACK INTO {into} ({', '.join(columns)}) VALUES "  # noqa: S608 - the names are written in this room
        self._row = f"({', '.join('?' * len(columns))})"
        self._conflict = conflict
        self._sql: dict[int, str] = {}

    def build_statements(self, values: list[Any]) -> Iterator[tuple[str, list[Any]]]:
        """The statements that insert these rows, given as one flat list: a single one for up to 64 rows."""
        width = self.width
        start, rows = 0, len(values) // width
        while rows:
            length = rows if rows <= _EXACT else _EXACT if rows < _LONG else _LONG
            yield self._build_statement(length), values[start : start + length * width]
            start += length * width
            rows -= length

    def _build_statement(self, length: int) -> str:
        sql = self._sql.get(length)
        if sql is None:
            sql = self._sql[length] = self._head + ", ".join([self._row] * length) + self._conflict
        return sql
