"""Whether the audit's chains in a PostgreSQL store hold, and all their links. Reads only, as of one moment, while nodes write."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from switchtower.stores import audit_chain, looking
from switchtower.stores.audit_chain import ACCOUNTS, SESSIONS, ChainVerifier, AuditLink, ChainReport
from switchtower.stores.postgres import names
from switchtower.stores.postgres.connections import PostgresConnection
from switchtower.stores.postgres_tools import addresses, look, pages

_CHAINED_EVENTS = """
SELECT wanted.number, events.data FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[])
    AS wanted (number, session_id, seq, kind)
JOIN sessions ON sessions.session_id = wanted.session_id
JOIN events ON events.sid = sessions.sid AND events.seq = wanted.seq AND events.kind = wanted.kind
"""
_DELETED = "SELECT session_id, max(number) FROM audit WHERE chain = 'sessions' AND kind = $1 GROUP BY session_id"
_STRAY = """
SELECT session_id, seq, kind FROM events JOIN sessions USING (sid)
WHERE kind IN ({kinds}) AND state <> 'deleted' AND NOT EXISTS (
    SELECT FROM audit WHERE chain = 'sessions' AND audit.session_id = sessions.session_id AND audit.seq = events.seq
        AND audit.kind = events.kind)
LIMIT 1
"""


async def verify_audit_chains(dsn: str, wanted: frozenset[str] = frozenset()) -> list[ChainReport]:
    """Raises `CannotLook`."""
    async with _open_chains(dsn) as connection:
        sessions, accounts = ChainVerifier(SESSIONS, wanted), ChainVerifier(ACCOUNTS, wanted)
        await _verify_sessions(connection, sessions)
        async for page in pages.read_link_pages(connection, ACCOUNTS):
            for _ in accounts.verify_links(page):
                pass
        accounts.verify_head(await pages.read_chain_head(connection, ACCOUNTS))
        return [sessions.found, accounts.found]


async def read_audit_links(dsn: str) -> AsyncIterator[tuple[str, AuditLink]]:
    """All links with the name of their chain, in order. Raises `CannotLook`."""
    async with _open_chains(dsn) as connection:
        for chain in (SESSIONS, ACCOUNTS):
            async for page in pages.read_link_pages(connection, chain):
                for link in page:
                    yield chain, link


async def _verify_sessions(connection: PostgresConnection, check: ChainVerifier) -> None:
    deleted = {names.unescape_nul(name): number for name, number in await connection.fetch(_DELETED, audit_chain.DELETED_KIND)}
    async for page in pages.read_link_pages(connection, SESSIONS):
        rows = await connection.fetch(
            _CHAINED_EVENTS,
            *([link.number for link in page], [names.escape_nul(link.session_id) for link in page]),
            *([link.seq for link in page], [link.kind for link in page]),
        )
        data = dict(map(tuple, rows))
        for link in check.verify_links(page):
            check.compare_event(link, data.get(link.number), deleted.get(link.session_id, 0))
    check.verify_head(await pages.read_chain_head(connection, SESSIONS))
    # Each by its own index.
    for kinds in ("'approval.requested'", "'approval.decided', 'approval.expired'"):
        if (stray := await connection.fetchrow(_STRAY.format(kinds=kinds))) is not None:
            check.record_stray(names.unescape_nul(stray[0]), stray[1], stray[2])


@asynccontextmanager
async def _open_chains(dsn: str) -> AsyncIterator[PostgresConnection]:
    async with look.open_readonly(dsn) as connection, look.open_snapshot(connection):
        if await connection.fetchval("SELECT to_regclass('audit_head')") is None:
            raise looking.StoreUnreadable(
                f"`{addresses.mask_password(dsn)}` was written by an older version, which kept no chain",
                hint="start a node once: it adds the chain",
            )
        yield connection
