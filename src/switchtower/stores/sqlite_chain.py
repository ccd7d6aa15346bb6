"""The audit's chain in a file of SQLite's: the journal's or the registry's. Each function works in its caller's transaction."""

import sqlite3
from collections.abc import Iterable, Iterator

from switchtower.stores import audit_chain
from switchtower.stores.audit_chain import AuditLink

_PAGE = 1_000
_INSERT = "INSERT INTO audit (number, ts_ms, session_id, seq, kind, digest, record, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_HEAD = "INSERT INTO audit_head VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE SET number = excluded.number, hash = excluded.hash"

# As two lists, so that both are found by their indices.
_DECIDED_BEFORE = """
SELECT ts_ms, session_id, seq, kind, data FROM (
    SELECT ts_ms, sid, seq, kind, data FROM events WHERE kind = 'approval.requested'
    UNION ALL SELECT ts_ms, sid, seq, kind, data FROM events WHERE kind IN ('approval.decided', 'approval.expired')
    UNION ALL SELECT ts_ms, sid, seq, kind, data FROM events WHERE kind = 'session.deleted'
        AND sid IN (SELECT sid FROM sessions WHERE state = 'deleted')
) JOIN sessions USING (sid) ORDER BY ts_ms, sid, seq
"""

ChainedEvent = tuple[int, str, int, str, bytes]
"""When, in which session, at which seq, of which kind, and its data."""


def read_chain_head(connection: sqlite3.Connection) -> tuple[int, bytes] | None:
    """None: nothing was ever recorded."""
    row: tuple[int, bytes] | None = connection.execute("SELECT number, hash FROM audit_head").fetchone()
    return row


def adopt_past_decisions(connection: sqlite3.Connection) -> None:
    """Once in the life of a journal: adds what was decided before there was a chain. In a separate transaction."""
    if read_chain_head(connection) is not None:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if read_chain_head(connection) is None and connection.execute("SELECT 1 FROM audit LIMIT 1").fetchone() is None:
            store_chain_head(connection, 0, audit_chain.FIRST_HASH)
            extend_chain(connection, connection.execute(_DECIDED_BEFORE))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def extend_chain(connection: sqlite3.Connection, happenings: Iterable[ChainedEvent]) -> None:
    number, previous = read_chain_head(connection) or _read_last_link(connection) or (0, audit_chain.FIRST_HASH)
    links: list[AuditLink] = []
    for happening in happenings:
        number += 1
        links.append(audit_chain.make_link(previous, number, *happening))
        previous = links[-1].hash
    if links:
        insert_links(connection, links)
        store_chain_head(connection, number, previous)


def insert_links(connection: sqlite3.Connection, links: Iterable[AuditLink]) -> None:
    connection.executemany(_INSERT, links)


def store_chain_head(connection: sqlite3.Connection, number: int, hash_: bytes) -> None:
    connection.execute(_HEAD, (number, hash_))


def _read_last_link(connection: sqlite3.Connection) -> tuple[int, bytes] | None:
    row: tuple[int, bytes] | None = connection.execute("SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1").fetchone()
    return row


def read_links(connection: sqlite3.Connection) -> Iterator[AuditLink]:
    """All of them, in order, a page at a time."""
    after = -(2**63)
    while rows := connection.execute(
        "SELECT number, ts_ms, session_id, seq, kind, digest, record, hash FROM audit WHERE number > ? ORDER BY number LIMIT ?",
        (after, _PAGE),
    ).fetchall():
        yield from map(AuditLink._make, rows)
        after = rows[-1][0]
