"""What a PostgreSQL journal holds, in numbers, as of one moment. Reads only."""

from switchtower.stores.postgres import names
from switchtower.stores.postgres.connections import SCHEMA, PostgresConnection
from switchtower.stores.postgres_tools import addresses, look
from switchtower.stores.sqlite_stats import MOST_LISTED, KindStats, LargeSession, JournalStats

_BYTES = (
    "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint FROM pg_class"
    " JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1 AND relkind = 'r'"
)


async def collect_journal_stats(dsn: str) -> JournalStats:
    """Raises `looking.CannotLook`, also for what breaks on the way. The log and free room are the server's: they count as 0."""
    async with look.open_readonly(dsn) as connection, look.open_snapshot(connection):
        return await _collect(connection, addresses.mask_password(dsn))


async def _collect(connection: PostgresConnection, place: str) -> JournalStats:
    async def one(query: str) -> int:
        return int(await connection.fetchval(query) or 0)

    # How long a value is, is known without reading it.
    kinds = await connection.fetch(
        "SELECT kind, sum(count)::bigint, sum(octet_length(data))::bigint FROM events GROUP BY kind ORDER BY 3 DESC, 1"
    )
    largest = await connection.fetch(
        "SELECT session_id, entries, bytes FROM sessions JOIN (SELECT sid, sum(count)::bigint AS entries,"
        " sum(octet_length(data))::bigint AS bytes FROM events GROUP BY sid ORDER BY 3 DESC, 1 LIMIT $1) AS largest USING (sid)"
        " ORDER BY bytes DESC, sid",
        MOST_LISTED,
    )
    states = await connection.fetch("SELECT state, count(*) FROM sessions GROUP BY state ORDER BY state")
    oldest_ms, newest_ms = await connection.fetchrow("SELECT min(created_at_ms), max(updated_at_ms) FROM sessions")
    counted = [KindStats(*kind) for kind in kinds]
    return JournalStats(
        path=place,
        schema=await look.read_schema_version(connection),
        file_bytes=await connection.fetchval(_BYTES, SCHEMA),
        log_bytes=0,
        free_bytes=0,
        sessions=await one("SELECT count(*) FROM sessions"),
        states=dict(states),
        entries=sum(kind.entries for kind in counted),
        entry_bytes=sum(kind.bytes for kind in counted),
        snapshots=await one("SELECT count(*) FROM snapshots"),
        receipts=await one("SELECT count(*) FROM receipts"),
        pruned_sessions=await one("SELECT count(*) FROM sessions WHERE pruned_through > 0"),
        oldest_ms=oldest_ms,
        newest_ms=newest_ms,
        kinds=counted,
        largest=[LargeSession(names.unescape_nul(session_id), entries, size) for session_id, entries, size in largest],
    )
