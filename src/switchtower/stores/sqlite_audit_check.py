"""Whether the audit's chains in a home's files hold, and all their links. Reads only, as of one moment, while a daemon writes."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from switchtower.stores import audit_chain, looking, sqlite_chain, sqlite_look
from switchtower.stores.audit_chain import ACCOUNTS, SESSIONS, ChainVerifier, AuditLink, ChainReport

_EVENT = "SELECT data FROM events WHERE sid = (SELECT sid FROM sessions WHERE session_id = ?) AND seq = ? AND kind = ?"
_DELETED = f"SELECT session_id, max(number) FROM audit WHERE kind = '{audit_chain.DELETED_KIND}' GROUP BY session_id"  # noqa: S608
_STRAY = """
SELECT session_id, seq, kind FROM events JOIN sessions USING (sid)
WHERE kind IN ({kinds}) AND state <> 'deleted' AND NOT EXISTS (
    SELECT 1 FROM audit WHERE audit.session_id = sessions.session_id AND audit.seq = events.seq AND audit.kind = events.kind)
LIMIT 1
"""


def verify_audit_chains(journal: Path, registry: Path, wanted: frozenset[str] = frozenset()) -> list[ChainReport]:
    """Raises `CannotLook`. A home without a registry has one chain."""
    with _open_chain(journal, sqlite_look.JOURNAL) as connection:
        found = [_verify_sessions(connection, ChainVerifier(SESSIONS, wanted))]
    if registry.exists():
        with _open_chain(registry, sqlite_look.REGISTRY) as connection:
            check = ChainVerifier(ACCOUNTS, wanted)
            for _ in check.verify_links(sqlite_chain.read_links(connection)):
                pass
            check.verify_head(sqlite_chain.read_chain_head(connection))
            found.append(check.found)
    return found


def read_audit_links(journal: Path, registry: Path) -> Iterator[tuple[str, AuditLink]]:
    """All links with the name of their chain, in order. Raises `CannotLook`."""
    with _open_chain(journal, sqlite_look.JOURNAL) as connection:
        for link in sqlite_chain.read_links(connection):
            yield SESSIONS, link
    if registry.exists():
        with _open_chain(registry, sqlite_look.REGISTRY) as connection:
            for link in sqlite_chain.read_links(connection):
                yield ACCOUNTS, link


def _verify_sessions(connection: sqlite3.Connection, check: ChainVerifier) -> ChainReport:
    deleted = dict(connection.execute(_DELETED).fetchall())
    for link in check.verify_links(sqlite_chain.read_links(connection)):
        row = connection.execute(_EVENT, (link.session_id, link.seq, link.kind)).fetchone()
        check.compare_event(link, None if row is None else row[0], deleted.get(link.session_id, 0))
    check.verify_head(sqlite_chain.read_chain_head(connection))
    # Each by its own index, where there is one.
    for kinds in ("'approval.requested'", "'approval.decided', 'approval.expired'"):
        if (stray := connection.execute(_STRAY.format(kinds=kinds)).fetchone()) is not None:
            check.record_stray(*stray)
    return check.found


@contextmanager
def _open_chain(path: Path, kind: str) -> Iterator[sqlite3.Connection]:
    with sqlite_look.open_readonly(path, kind) as connection:
        connection.execute("BEGIN")
        if connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'audit_head'").fetchone() is None:
            raise looking.StoreUnreadable(
                f"`{path}` was written by an older version, which kept no chain", hint="start the daemon once: it adds the chain"
            )
        try:
            yield connection
        except sqlite3.Error as problem:
            raise looking.StoreUnreadable(f"`{path}` cannot be read: {problem}", hint="see `tower journal verify`") from None
