"""A PostgreSQL store as the source or the target of a copy. Within `inspection.open_snapshot` a source is read as of one
moment, while nodes continue to write.

A target is built in a separate schema beside the one that it becomes, until all of it is copied and compared. Then the two
change names, in one transaction. No node may be alive meanwhile: one that starts would find the store that existed before, or
none.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from switchtower.stores import packed_rows
from switchtower.stores.audit import AuditLink
from switchtower.stores.postgres import batch, database, inspection, verification
from switchtower.stores.postgres.database import SCHEMA, PostgresConnection
from switchtower.stores.transfer.ports import REGISTRY, ReceiptRow, RecordRow, SessionRow, TransferError

_ROWS = 500
_SESSION = (
    "SELECT sessions.sid, sessions.session_id, homes.epoch, homes.head, state, created_at_ms, updated_at_ms, loaded,"
    " pruned_through, card, snapshots.seq FROM sessions JOIN homes USING (session_id)"
    " LEFT JOIN snapshots ON snapshots.sid = sessions.sid"
)
_NAMED_OTHERWISE = {"user": "owner"}


def list_columns(table: str) -> list[str]:
    return [_NAMED_OTHERWISE.get(column, column) for column in REGISTRY[table].columns]


class PostgresSource:
    """Implements `ports.StoreSource`."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    async def count_sessions(self) -> int:
        return int(await self._connection.fetchval("SELECT count(*) FROM sessions"))

    async def read_sessions(self, after_sid: int, limit: int) -> list[SessionRow]:
        rows = await self._connection.fetch(
            f"{_SESSION} WHERE sessions.sid > $1 ORDER BY sessions.sid LIMIT $2", after_sid, limit
        )
        return [_make_session_row(row) for row in rows]

    async def find_session(self, session_id: str) -> SessionRow | None:
        row = await self._connection.fetchrow(f"{_SESSION} WHERE sessions.session_id = $1", database.escape_nul(session_id))
        return None if row is None else _make_session_row(row)

    async def read_snapshot(self, sid: int) -> bytes | None:
        snapshot: bytes | None = await self._connection.fetchval("SELECT data FROM snapshots WHERE sid = $1", sid)
        return snapshot

    async def read_events(self, sid: int, after_seq: int) -> AsyncIterator[list[packed_rows.PackedRow]]:
        async for rows in verification.read_event_pages(self._connection, sid, after_seq):
            yield rows

    async def read_receipts(self) -> AsyncIterator[list[ReceiptRow]]:
        async for receipts in verification.read_receipt_pages(self._connection):
            yield receipts

    async def read_records(self, table: str) -> AsyncIterator[list[RecordRow]]:
        columns = list_columns(table)
        key = columns[: REGISTRY[table].key]
        places = [f"${number}" for number in range(2, 2 + len(key))]
        first = f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608 - names of ours
        order = f" ORDER BY {', '.join(key)} LIMIT $1"
        rows = await self._connection.fetch(first + order, _ROWS)
        while rows:
            yield [tuple(database.unescape_nul(value) if isinstance(value, str) else value for value in row) for row in rows]
            last = list(rows[-1])[: len(key)]
            rows = await self._connection.fetch(f"{first} WHERE ({', '.join(key)}) > ({', '.join(places)}){order}", _ROWS, *last)

    async def read_links(self, chain: str) -> AsyncIterator[list[AuditLink]]:
        async for links in verification.read_link_pages(self._connection, chain):
            yield links

    async def read_chain_head(self, chain: str) -> tuple[int, bytes] | None:
        return await verification.read_chain_head(self._connection, chain)

    async def read_secrets(self) -> dict[str, bytes]:
        if await self._connection.fetchval("SELECT to_regclass('secrets')") is None:  # a store of the first versions
            return {}
        # An empty value counts as none: a node was about to create it.
        rows = await self._connection.fetch("SELECT name, value FROM secrets WHERE octet_length(value) > 0")
        return {database.unescape_nul(name): value for name, value in rows}


def _make_session_row(row: Any) -> SessionRow:
    sid, session_id, *rest = row
    return SessionRow(sid, database.unescape_nul(session_id), *rest)


STAGING = f"{SCHEMA}_copying"
_ASIDE = f"{SCHEMA}_for_a_moment"
_LOCK = 0x746F776572_03
_LOCK_TIMEOUT = 5.0
_LOCK_PAUSE = 0.1
_FILLED = (
    "SELECT EXISTS (SELECT FROM {0}.homes WHERE head > 0) OR EXISTS (SELECT FROM {0}.receipts)"
    " OR EXISTS (SELECT FROM {0}.users) OR EXISTS (SELECT FROM {0}.hosts)"
)


async def check_no_live_nodes(connection: PostgresConnection, place: str) -> None:
    """Raises `TransferError` while a node is alive."""
    if nodes := await inspection.list_live_nodes(connection):
        told = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
        raise TransferError(
            f"nodes are alive on `{place}`: {told}",
            hint="stop them with `tower stop` at each; one that was killed counts until its lease is over",
        )


async def has_data(connection: PostgresConnection) -> bool:
    """Returns whether there is a store with any data."""
    return bool(await inspection.read_schema_version(connection)) and bool(await connection.fetchval(_FILLED.format(SCHEMA)))


@asynccontextmanager
async def open_target(
    dsn: str, *, resume: bool = False, restart: bool = False, replace: bool = False, timeout: float = _LOCK_TIMEOUT
) -> AsyncIterator["PostgresTarget"]:
    """`resume`: continues what an interrupted copy left; `restart` discards that. `replace`: an existing store is moved aside in
    the end. Raises `TransferError` and `StoreUnreadable`.
    """
    place = database.mask_password(dsn)
    async with inspection.open_database(dsn) as connection:
        await _lock_target(connection, place, timeout)
        if await inspection.read_schema_version(connection):
            await inspection.check_schema(connection, place)
            await check_no_live_nodes(connection, place)
            if not replace and await has_data(connection):
                raise TransferError(f"`{place}` is not empty", hint="name an empty database; --verify-only compares it")
        await _prepare_staging(connection, place, resume=resume, restart=restart)
        await connection.execute(f"SET search_path = {STAGING}")
        # After a crash of the server the copy is consistent, though perhaps less complete; the last commit waits for all of it.
        await connection.execute("SET synchronous_commit = off")
        # The audit's chain is copied too, so copied events must not add links to it.
        await connection.execute("SET switchtower.copying = 'on'")
        yield PostgresTarget(connection, place, replace=replace)


async def _lock_target(connection: PostgresConnection, place: str, timeout: float) -> None:
    """Allows one copy at a time. The server may need a moment to notice that an earlier one was killed."""
    deadline = time.monotonic() + timeout
    while not await connection.fetchval(f"SELECT pg_try_advisory_lock({_LOCK})"):
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(_LOCK_PAUSE)
    else:
        return
    raise TransferError(f"another copy into `{place}` is under way", hint="wait for it")


async def _prepare_staging(connection: PostgresConnection, place: str, *, resume: bool, restart: bool) -> None:
    version = await inspection.read_schema_version(connection, STAGING)
    if version and not restart:
        if not resume:
            raise TransferError(f"a copy into `{place}` was interrupted", hint="--resume goes on with it, --restart begins again")
        if version != max(database.load_scripts()):
            raise TransferError(
                f"a copy into `{place}` was begun by another version of the program", hint="--restart begins again"
            )
        return
    async with connection.transaction():
        await connection.execute(f"DROP SCHEMA IF EXISTS {STAGING} CASCADE")
        there = await _schema_exists(connection, SCHEMA)
        if there:
            await connection.execute(f"ALTER SCHEMA {SCHEMA} RENAME TO {_ASIDE}")
        await database.migrate(connection)
        await connection.execute(f"ALTER SCHEMA {SCHEMA} RENAME TO {STAGING}")
        if there:
            await connection.execute(f"ALTER SCHEMA {_ASIDE} RENAME TO {SCHEMA}")


async def _schema_exists(connection: PostgresConnection, where: str) -> bool:
    return bool(await connection.fetchval("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", where))


class PostgresTarget(PostgresSource):
    """Implements `ports.StoreTarget`."""

    def __init__(self, connection: PostgresConnection, place: str, *, replace: bool) -> None:
        super().__init__(connection)
        self._place = place
        self._replace = replace
        self._changes = False
        self.kept_aside: str | None = None
        """The schema with the previous store, when it was replaced."""

    async def _execute(self, query: str, *values: Any) -> None:
        if not self._changes:
            await self._connection.execute("BEGIN")
            self._changes = True
        await self._connection.execute(query, *values)

    async def delete_session(self, sid: int) -> None:
        for table in ("events", "snapshots", "sessions", "homes"):
            await self._execute(f"DELETE FROM {table} WHERE sid = $1", sid)  # noqa: S608 - names of ours

    async def put_events(self, sid: int, rows: Sequence[packed_rows.PackedRow]) -> None:
        seqs, counts, times, runs, kinds, data = (list(column) for column in zip(*rows, strict=True))
        await self._execute(
            "INSERT INTO events (sid, seq, count, ts_ms, run_id, kind, data)"
            " SELECT $1, * FROM unnest($2::bigint[], $3::integer[], $4::bigint[], $5::text[], $6::text[], $7::bytea[])",
            *(sid, seqs, counts, times, [None if run is None else database.escape_nul(run) for run in runs], kinds, data),
        )

    async def put_session(self, session: SessionRow, snapshot: bytes | None) -> None:
        name = database.escape_nul(session.session_id)
        await self._execute(
            "INSERT INTO homes (session_id, sid, epoch, head) OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3, $4)",
            *(name, session.sid, session.epoch, session.head),
        )
        await self._execute(
            "INSERT INTO sessions (sid, session_id, state, created_at_ms, updated_at_ms, loaded, pruned_through, card)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            *(session.sid, name, session.state, session.created_at_ms, session.updated_at_ms),
            *(session.loaded, session.pruned_through, session.card),
        )
        if session.snapshot_seq is not None:
            await self._execute(
                "INSERT INTO snapshots (sid, seq, data) VALUES ($1, $2, $3)", session.sid, session.snapshot_seq, snapshot
            )

    async def clear_receipts(self) -> None:
        await self._execute("DELETE FROM receipts")

    async def put_receipts(self, receipts: Sequence[ReceiptRow]) -> None:
        scopes, keys, fingerprints, outcomes, recorded, expires = (list(column) for column in zip(*receipts, strict=True))
        await self._execute(
            "INSERT INTO receipts (identity, scope, key, fingerprint, outcome, recorded_at_ms, expires_at_ms) SELECT * FROM"
            " unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::bigint[])",
            [batch.hash_identity(scope, key) for scope, key in zip(scopes, keys, strict=True)],
            *([database.escape_nul(text) for text in texts] for texts in (scopes, keys, fingerprints)),
            *(outcomes, recorded, expires),
        )

    async def clear_records(self) -> None:
        for table in REGISTRY:
            await self._execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours

    async def put_records(self, table: str, records: Sequence[RecordRow]) -> None:
        columns = list_columns(table)
        places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
        for record in records:
            await self._execute(
                f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})",  # noqa: S608 - names of ours
                *(database.escape_nul(value) if isinstance(value, str) else value for value in record),
            )

    async def clear_chain(self, chain: str) -> None:
        await self._execute("DELETE FROM audit WHERE chain = $1", chain)
        await self._execute("DELETE FROM audit_head WHERE chain = $1", chain)

    async def put_links(self, chain: str, links: Sequence[AuditLink]) -> None:
        for link in links:
            number, ts_ms, session_id, *rest = link
            await self._execute(
                "INSERT INTO audit (chain, number, ts_ms, session_id, seq, kind, digest, record, hash)"
                " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                *(chain, number, ts_ms, database.escape_nul(session_id), *rest),
            )

    async def put_chain_head(self, chain: str, number: int, hash_: bytes) -> None:
        await self._execute("INSERT INTO audit_head (chain, number, hash) VALUES ($1, $2, $3)", chain, number, hash_)

    async def put_secrets(self, secrets: Mapping[str, bytes]) -> None:
        for name, value in secrets.items():
            await self._execute(
                "INSERT INTO secrets (name, value, made_at) VALUES ($1, $2, now()) ON CONFLICT (name) DO UPDATE SET value = $2",
                *(database.escape_nul(name), value),
            )

    async def commit(self) -> None:
        if self._changes:
            await self._connection.execute("COMMIT")
            self._changes = False

    async def activate(self) -> None:
        async with self.activate_with():
            pass

    @asynccontextmanager
    async def activate_with(self) -> AsyncIterator[None]:
        """The code inside belongs to the transaction: if it fails, everything stays as it was."""
        await self.commit()
        connection = self._connection
        await connection.execute("ANALYZE homes, sessions, events, snapshots, receipts")
        async with connection.transaction():
            await connection.execute("SET LOCAL synchronous_commit = on")
            await connection.execute(
                "SELECT setval(pg_get_serial_sequence('homes', 'sid'), greatest(1, (SELECT max(sid) FROM homes)))"
            )
            if await _schema_exists(connection, SCHEMA):
                await self._move_old_aside(connection)
            await connection.execute(f"ALTER SCHEMA {STAGING} RENAME TO {SCHEMA}")
            yield

    async def _move_old_aside(self, connection: PostgresConnection) -> None:
        await check_no_live_nodes(connection, self._place)
        # The secrets of the nodes stay, where the copy brings no others.
        if await connection.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.secrets"):
            await connection.execute(f"INSERT INTO secrets SELECT * FROM {SCHEMA}.secrets ON CONFLICT DO NOTHING")  # noqa: S608
        if not await connection.fetchval(_FILLED.format(SCHEMA)):
            await connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
        elif self._replace:
            now_ms = time.time_ns() // 1_000_000
            mark = f"{time.strftime('%Y%m%dt%H%M%S', time.gmtime(now_ms // 1000))}_{now_ms % 1000:03}z"
            self.kept_aside = f"{SCHEMA}_before_restore_{mark}"
            await connection.execute(f"ALTER SCHEMA {SCHEMA} RENAME TO {self.kept_aside}")
        else:
            raise TransferError(f"`{self._place}` is not empty any more", hint="a node was started there; name another database")
