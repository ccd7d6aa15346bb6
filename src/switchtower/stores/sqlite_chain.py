"""The audit's chain in a file of SQLite's: the journal's or the registry's. Each function works in its caller's transaction."""

import sqlite3
from collections.abc import Iterable, Iterator

from switchtower.stores import audit_chain
from switchtower.stores.audit_chain import Link

_PAGE = 1_000
_INSERT = "INSERT INTO audit (number, ts_ms, session_id, seq, kind, digest, record, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_HEAD = "INSERT INTO audit_head VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE SET number = excluded.number, hash = excluded.hash"

Happening = tuple[int, str, int, str, bytes]
"""When, in which session, at which seq, of which kind, and its data."""


def head(connection: sqlite3.Connection) -> tuple[int, bytes] | None:
    """None: nothing was ever recorded."""
    row: tuple[int, bytes] | None = connection.execute("SELECT number, hash FROM audit_head").fetchone()
    return row


def extend(connection: sqlite3.Connection, happenings: Iterable[Happening]) -> None:
    number, previous = head(connection) or (0, audit_chain.FIRST)
    links: list[Link] = []
    for happening in happenings:
        number += 1
        links.append(audit_chain.make(previous, number, *happening))
        previous = links[-1].hash
    if links:
        connection.executemany(_INSERT, links)
        connection.execute(_HEAD, (number, previous))


def read(connection: sqlite3.Connection) -> Iterator[Link]:
    """All of them, in order, a page at a time."""
    after = -(2**63)
    while rows := connection.execute(
        "SELECT number, ts_ms, session_id, seq, kind, digest, record, hash FROM audit WHERE number > ? ORDER BY number LIMIT ?",
        (after, _PAGE),
    ).fetchall():
        yield from map(Link._make, rows)
        after = rows[-1][0]
