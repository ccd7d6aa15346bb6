"""Inspects a PostgreSQL store from outside: the health of its server, the number of sessions in each state, and statistics of
the journal. It only reads, as of one moment where needed, and nodes may run meanwhile.

Reads decisions over all sessions of all nodes, by two small indexes of the journal's table."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from msgspec import Struct

from switchtower.core import errors, events
from switchtower.core.ports import journal
from switchtower.stores import audit
from switchtower.stores.postgres import database
from switchtower.stores.postgres.database import SCHEMA, PostgresConnection
from switchtower.stores.postgres.pool import LazyPool, Pool
from switchtower.stores.verification import MOST_LISTED, JournalStats, KindStats, LargeSession, StoreUnreadable

AUDIT_RETRY_TIMEOUT = 5.0
_LARGEST = 2**63 - 1
_LIKELY = 4
"""The number of requests that may contain the approval's id; the first that has it is the right one."""

# The conditions on `kind` repeat those of the indexes literally: otherwise the indexes are not used.
_DECIDED = """
SELECT ts_ms, sid, seq, kind, data FROM events
WHERE kind IN ('approval.decided', 'approval.expired') AND (ts_ms, sid, seq) < ($1, $2, $3) AND ts_ms >= $4
ORDER BY ts_ms DESC, sid DESC, seq DESC LIMIT $5
"""
_SESSIONS = "SELECT sid, session_id, card FROM sessions WHERE sid = ANY ($1) AND state <> 'deleted'"
_ASKED = """
SELECT decided.sid, decided.seq, asked.data
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS decided (sid, seq, needle), LATERAL (
    SELECT last.data FROM (
        SELECT events.seq, events.data FROM events
        WHERE kind = 'approval.requested' AND events.sid = decided.sid AND events.seq < decided.seq
        ORDER BY events.seq DESC LIMIT $4) AS last
    WHERE position(decided.needle IN last.data) > 0 ORDER BY last.seq DESC LIMIT $5) AS asked
"""


class PostgresAudit:
    """Implements `journal.Audit`. Opens by itself when it is first used."""

    def __init__(self, dsn: str, *, timeout: float = AUDIT_RETRY_TIMEOUT) -> None:
        self._pool = LazyPool(dsn, most=1, timeout=timeout)

    async def read_page(self, limit: int, *, before: str | None = None, since_ms: int = 0) -> journal.AuditPage:
        start = audit.END_CURSOR if before is None else audit.decode_cursor(before)
        since_ms = max(-_LARGEST, min(since_ms, _LARGEST))
        with database.translate_errors():
            pool = await self._pool.get()
            rows = await pool.fetch(_DECIDED, *start, since_ms, limit + 1)
            found = await _make_records(pool, rows[:limit])
        is_more = len(rows) > limit
        return journal.AuditPage(found, audit.encode_cursor(*tuple(rows[limit - 1])[:3]) if is_more else None)

    async def close(self) -> None:
        await self._pool.close()


async def _make_records(pool: Pool, rows: list[Any]) -> list[journal.AuditRecord]:
    decided = [((ts_ms, sid, seq), audit.decode_decision(kind, data)) for ts_ms, sid, seq, kind, data in rows]
    sessions = {
        sid: (database.unescape_nul(session_id), card)
        for sid, session_id, card in await pool.fetch(_SESSIONS, list({sid for (_, sid, _), _ in decided}))
    }
    asked: dict[tuple[int, int], list[events.Approval]] = {}
    for sid, seq, data in await pool.fetch(
        _ASKED,
        [sid for (_, sid, _), _ in decided],
        [seq for (_, _, seq), _ in decided],
        [msgspec.json.encode(event.approval_id) for _, event in decided],  # as an entry encodes it
        *(audit.MOST_LOOKED_BACK, _LIKELY),
    ):
        asked.setdefault((sid, seq), []).append(audit.decode_request(data))
    return [
        audit.make_record(at, event, *sessions[at[1]], _find_request(asked.get(at[1:], []), event.approval_id))
        for at, event in decided
        if at[1] in sessions  # otherwise the session is being deleted
    ]


def _find_request(asked: list[events.Approval], approval_id: str) -> events.Approval | None:
    return next((one for one in asked if one.id == approval_id), None)


_CLOSE_SECONDS = 2.0
_UNREACHABLE = "see whether it runs, whether the address is right, and `tower doctor`"


@asynccontextmanager
async def open_database(dsn: str, settings: dict[str, str] | None = None) -> AsyncIterator[PostgresConnection]:
    """Opens any database. Raises `StoreUnreadable` when it cannot be reached, and for errors in between."""
    place = database.mask_password(dsn)
    try:
        connection = await database.connect(dsn, settings)
    except ImportError:
        raise StoreUnreadable("the library for PostgreSQL is not installed", hint="install `switchtower[postgres]`") from None
    except errors.JournalUnavailable as problem:
        raise StoreUnreadable(f"`{place}`: {problem.detail}", hint=problem.hint or _UNREACHABLE) from None
    except Exception as problem:
        if not database.is_database_error(problem):
            raise
        raise StoreUnreadable(f"`{place}` cannot be reached: {database.summarize_error(problem)}", hint=_UNREACHABLE) from None
    try:
        yield connection
    except Exception as problem:
        if not database.is_database_error(problem):
            raise
        raise StoreUnreadable(f"`{place}` failed: {database.summarize_error(problem)}", hint=_UNREACHABLE) from None
    finally:
        with suppress(Exception):
            await connection.close(timeout=_CLOSE_SECONDS)
        connection.terminate()


@asynccontextmanager
async def open_readonly(dsn: str, where: str = SCHEMA) -> AsyncIterator[PostgresConnection]:
    """Opens a store for reading. Raises `StoreUnreadable` also for a database without a store, or with one of a newer program."""
    async with open_database(dsn, {"search_path": where, "default_transaction_read_only": "on"}) as connection:
        await check_schema(connection, database.mask_password(dsn), where)
        yield connection


@asynccontextmanager
async def open_snapshot(connection: PostgresConnection) -> AsyncIterator[None]:
    """All reads inside see the state at its start."""
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    try:
        yield
    finally:
        if not connection.is_closed():
            with suppress(Exception):
                await connection.execute("ROLLBACK")


async def read_schema_version(connection: PostgresConnection, where: str = SCHEMA) -> int:
    """0 for a database without a store."""
    if await connection.fetchval("SELECT to_regclass($1)", f"{where}.migrations") is None:
        return 0
    version: int = await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {where}.migrations")  # noqa: S608 - our own name
    return version


async def check_schema(connection: PostgresConnection, place: str, where: str = SCHEMA) -> None:
    version, newest = await read_schema_version(connection, where), max(database.load_scripts())
    if not version:
        raise StoreUnreadable(
            f"`{place}` holds no tower", hint="a node makes one when it starts: `tower serve --store URL`; or name another"
        )
    if version > newest:
        raise StoreUnreadable(
            f"the schema of `{place}` is version {version} and this program knows {newest}",
            hint="use the newer program that wrote it",
        )


OLDEST = 140_000
"""PostgreSQL 14, in the server's notation."""


class PostgresHealth(Struct, frozen=True, kw_only=True):
    version: str
    version_number: int
    schema: int
    """0 while it has no store."""
    settings: dict[str, str]
    """The settings in `PROMISES`, as the server gives them to any client."""
    most_connections: int
    used_connections: int
    is_standby: bool
    may_create: bool
    """The first start creates our schema."""
    clock_ahead_ms: int
    """The difference to our clock, with half of the round trip taken into account."""
    nodes: list[str]
    """The live nodes, by address."""
    bytes: int


PROMISES = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names", "server_encoding")


async def check_health(dsn: str) -> PostgresHealth:
    """Raises `StoreUnreadable` when the database cannot be reached."""
    async with open_database(dsn, {"default_transaction_read_only": "on"}) as connection:
        schema = await read_schema_version(connection)
        return PostgresHealth(
            version=await connection.fetchval("SHOW server_version"),
            version_number=int(await connection.fetchval("SHOW server_version_num")),
            schema=schema,
            # Not the values of this connection, which overrides some of them itself.
            settings=dict(
                await connection.fetch("SELECT name, reset_val FROM pg_settings WHERE name = ANY ($1)", list(PROMISES))
            ),
            most_connections=await connection.fetchval(
                "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
            ),
            used_connections=await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            ),
            is_standby=await connection.fetchval("SELECT pg_is_in_recovery()"),
            may_create=await connection.fetchval("SELECT has_database_privilege(current_database(), 'CREATE')"),
            clock_ahead_ms=await _measure_clock_skew_ms(connection),
            nodes=await list_live_nodes(connection) if schema else [],
            bytes=await connection.fetchval("SELECT pg_database_size(current_database())"),
        )


async def list_live_nodes(connection: PostgresConnection, where: str = SCHEMA) -> list[str]:
    """Returns the nodes whose lease is valid, by the database's clock."""
    rows = await connection.fetch(
        f"SELECT node_id, address FROM {where}.nodes WHERE expires_at > clock_timestamp() ORDER BY node_id"  # noqa: S608 - our own name
    )
    return [f"{node_id} at {address}" for node_id, address in rows]


async def _measure_clock_skew_ms(connection: PostgresConnection) -> int:
    """Takes the narrowest of a few measurements: the round trip is the error."""
    narrowest = None
    ahead = 0
    for _ in range(3):
        asked_at = time.time()
        theirs = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        answered_at = time.time()
        if narrowest is None or answered_at - asked_at < narrowest:
            narrowest = answered_at - asked_at
            ahead = round((theirs - (asked_at + answered_at) / 2) * 1000)
    return ahead


RETRY_TIMEOUT = 2.0
"""A number of seconds; it is short, because a metric may be missing for a while."""


class PostgresCounts:
    """Opens by itself when it is first used."""

    def __init__(self, dsn: str, *, timeout: float = RETRY_TIMEOUT) -> None:
        self._pool = LazyPool(dsn, most=1, timeout=timeout)

    async def count_states(self) -> dict[str, int]:
        """Raises `errors.JournalUnavailable`."""
        with database.translate_errors():
            rows = await (await self._pool.get()).fetch("SELECT state, count(*) FROM sessions GROUP BY state")
        return dict(rows)

    async def measure_size(self) -> int:
        """Returns the size of all our tables with their indexes. Raises `errors.JournalUnavailable`."""
        with database.translate_errors():
            rows = await (await self._pool.get()).fetch(
                "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint FROM pg_class"
                " JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1 AND relkind = 'r'",
                SCHEMA,
            )
        return int(rows[0][0])

    async def close(self) -> None:
        await self._pool.close()


_BYTES = (
    "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint FROM pg_class"
    " JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1 AND relkind = 'r'"
)


async def collect_journal_stats(dsn: str) -> JournalStats:
    """Raises `StoreUnreadable`, also for errors in between. The log and free space belong to the server: they count as 0."""
    async with open_readonly(dsn) as connection, open_snapshot(connection):
        return await _collect(connection, database.mask_password(dsn))


async def _collect(connection: PostgresConnection, place: str) -> JournalStats:
    async def one(query: str) -> int:
        return int(await connection.fetchval(query) or 0)

    # The length of a value is known without reading it.
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
        schema=await read_schema_version(connection),
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
        largest=[LargeSession(database.unescape_nul(session_id), entries, size) for session_id, entries, size in largest],
    )
