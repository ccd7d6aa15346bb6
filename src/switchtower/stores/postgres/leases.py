"""The leases in PostgreSQL, in the row that every append to a session locks: a takeover and an append of the old owner cannot
miss each other. Time is the database's: the clocks of nodes play no part.

A transaction that gives something to a node locks the node's row first, and one that empties a node waits for that row:
nothing can be given to a node that drains, leaves or is forgotten at that moment.
"""

# ruff: noqa: S608 - what queries are put together from is written in this file

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

from switchtower.core import errors
from switchtower.core.ports import cluster
from switchtower.stores.postgres import database
from switchtower.stores.postgres.database import PostgresConnection
from switchtower.stores.postgres.pool import Pool

Result = TypeVar("Result")
RETRY_TIMEOUT = 5.0
_CONNECTIONS = 2

_IN = "clock_timestamp() + $2 * interval '1 millisecond'"
_MS = "(extract(epoch FROM {0}) * 1000)::bigint"
_LEASE = f"homes.session_id, homes.node_id, homes.epoch, {_MS.format('nodes.expires_at')}"
# `now()` is the start of the transaction: a node is silent only if it was so before the transaction waited for a row.
_SILENT = "EXISTS (SELECT FROM nodes WHERE nodes.node_id = homes.node_id AND nodes.expires_at <= now())"
_TAKER = "SELECT node_id, expires_at FROM nodes WHERE node_id = {0} AND expires_at > now() AND NOT draining FOR KEY SHARE"
# The owners one by one along the index, however many sessions each has; and of these the ones that are not alive.
_SILENT_OWNERS = (
    "WITH RECURSIVE owners AS ("
    "   (SELECT node_id FROM homes WHERE node_id IS NOT NULL ORDER BY node_id LIMIT 1) UNION ALL"
    "   SELECT (SELECT homes.node_id FROM homes WHERE homes.node_id > owners.node_id ORDER BY homes.node_id LIMIT 1)"
    "   FROM owners WHERE owners.node_id IS NOT NULL)"
    " SELECT node_id FROM owners WHERE node_id IS NOT NULL"
    "   AND NOT EXISTS (SELECT FROM nodes WHERE nodes.node_id = owners.node_id AND nodes.expires_at > now())"
)
_UNDER_WAY = "SELECT FROM sessions WHERE sessions.session_id = homes.session_id AND is_under_way(state, card)"


class PostgresLeases:
    """Implements `cluster.Leases`."""

    def __init__(self, dsn: str, *, timeout: float = RETRY_TIMEOUT) -> None:
        self._dsn = dsn
        self._timeout = timeout
        self._pool: Pool | None = None

    async def open(self) -> None:
        pool = Pool(self._dsn, most=_CONNECTIONS, timeout=self._timeout)
        with _translate_errors():
            await pool.open(database.migrate)
        self._pool = pool

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _run_transaction(self, work: Callable[[PostgresConnection], Awaitable[Result]]) -> Result:
        """Runs one transaction; each of them can safely be repeated."""
        if self._pool is None:
            raise cluster.LeasesUnavailable("they are not open")
        with _translate_errors():
            return await self._pool.run_transaction(work)

    async def _fetch_rows(self, query: str, *values: Any) -> list[Any]:
        """Runs one statement."""
        return await self._run_transaction(lambda connection: connection.fetch(query, *values))

    async def join(self, node_id: str, address: str, lasts_ms: int, *, name: str = "", version: str = "") -> None:
        await self._fetch_rows(
            "INSERT INTO nodes (node_id, address, joined_at, expires_at, name, version)"
            f" VALUES ($1, $3, clock_timestamp(), {_IN}, $4, $5)"
            " ON CONFLICT (node_id) DO UPDATE SET address = excluded.address, expires_at = excluded.expires_at,"
            "   name = excluded.name, version = excluded.version",
            *(
                database.escape_nul(node_id),
                lasts_ms,
                database.escape_nul(address),
                database.escape_nul(name),
                database.escape_nul(version),
            ),
        )

    async def begin_drain(self, node_id: str) -> None:
        await self._fetch_rows("UPDATE nodes SET draining = true WHERE node_id = $1", database.escape_nul(node_id))

    async def drain(self, node_id: str) -> int:
        async def work(connection: PostgresConnection) -> int:
            # The second statement sees what was given to the node before the first locked its row.
            await connection.execute("SELECT FROM nodes WHERE node_id = $1 FOR UPDATE", database.escape_nul(node_id))
            await connection.execute("UPDATE nodes SET draining = true WHERE node_id = $1", database.escape_nul(node_id))
            return await _release_all(connection, node_id)

        return await self._run_transaction(work)

    async def renew(self, node_id: str, lasts_ms: int) -> cluster.Renewal:
        for (was_alive,) in await self._fetch_rows(
            "WITH before AS ("
            "   SELECT node_id, expires_at > clock_timestamp() AS was_alive FROM nodes WHERE node_id = $1 FOR NO KEY UPDATE)"
            f" UPDATE nodes SET expires_at = {_IN} FROM before WHERE nodes.node_id = before.node_id RETURNING was_alive",
            *(database.escape_nul(node_id), lasts_ms),
        ):
            return cluster.Renewal.KEPT if was_alive else cluster.Renewal.LATE
        return cluster.Renewal.UNKNOWN

    async def inherit(self, from_node_id: str, node_id: str) -> int:
        async def work(connection: PostgresConnection) -> int:
            alive = "SELECT FROM nodes WHERE node_id = $1 AND expires_at > now() AND NOT draining FOR KEY SHARE"
            if not await connection.fetch(alive, database.escape_nul(node_id)):
                return 0
            await connection.execute("DELETE FROM nodes WHERE node_id = $1", database.escape_nul(from_node_id))
            taken = await connection.fetch(
                "UPDATE homes SET node_id = $2, epoch = epoch + 1 WHERE node_id = $1 RETURNING 1",
                *(database.escape_nul(from_node_id), database.escape_nul(node_id)),
            )
            return len(taken)

        return await self._run_transaction(work)

    async def leave(self, node_id: str) -> int:
        async def work(connection: PostgresConnection) -> int:
            await connection.execute("DELETE FROM nodes WHERE node_id = $1", database.escape_nul(node_id))
            return await _release_all(connection, node_id)

        return await self._run_transaction(work)

    async def list_nodes(self, *, counted: bool = True) -> list[cluster.Node]:
        count = "(SELECT count(*) FROM homes WHERE homes.node_id = nodes.node_id AND homes.head > 0)" if counted else "0"
        rows = await self._fetch_rows(
            f"SELECT node_id, address, name, version, {_MS.format('joined_at')}, {_MS.format('expires_at')},"
            f" expires_at > clock_timestamp(), draining, {count} FROM nodes ORDER BY node_id"
        )
        return [_make_node(row) for row in rows]

    async def forget_nodes(self, silent_for_ms: int) -> int:
        async def work(connection: PostgresConnection) -> int:
            rows = await connection.fetch(
                "SELECT node_id FROM nodes WHERE expires_at <= now() - $1 * interval '1 millisecond' FOR UPDATE SKIP LOCKED",
                silent_for_ms,
            )
            deleted = await connection.fetch(
                "DELETE FROM nodes WHERE node_id = ANY ($1)"
                " AND NOT EXISTS (SELECT FROM homes WHERE homes.node_id = nodes.node_id) RETURNING 1",
                [node_id for (node_id,) in rows],
            )
            return len(deleted)

        return await self._run_transaction(work)

    async def acquire(self, session_id: str, node_id: str) -> cluster.Lease | None:
        return next(iter(await self.acquire_all([session_id], node_id)), None)

    async def acquire_all(self, session_ids: Sequence[str], node_id: str, *, begin: bool = True) -> list[cluster.Lease]:
        # Sorted like appends: two nodes that want the same rows do not deadlock.
        wanted = sorted({database.escape_nul(session_id) for session_id in session_ids})
        rows = await self._fetch_rows(
            f"WITH taker AS ({_TAKER.format('$2')}), taken AS ("
            " INSERT INTO homes (session_id, epoch, node_id)"
            "   SELECT wanted.session_id, 1, node_id FROM taker, unnest($1::text[]) WITH ORDINALITY AS wanted (session_id, place)"
            "   WHERE $3 OR EXISTS (SELECT FROM homes WHERE homes.session_id = wanted.session_id) ORDER BY place"
            " ON CONFLICT (session_id) DO UPDATE SET node_id = excluded.node_id,"
            "   epoch = CASE WHEN homes.node_id = excluded.node_id THEN homes.epoch ELSE homes.epoch + 1 END"
            f" WHERE homes.node_id IS NULL OR homes.node_id = excluded.node_id OR {_SILENT}"
            " RETURNING session_id, node_id, epoch)"
            f" SELECT session_id, node_id, epoch, {_MS.format('expires_at')} FROM taken JOIN taker USING (node_id)",
            *(wanted, database.escape_nul(node_id), begin),
        )
        return [_make_lease(row) for row in rows]

    async def hand_over(self, lease: cluster.Lease, to_node_id: str) -> cluster.Lease | None:
        return _make_single_lease(
            await self._fetch_rows(
                f"UPDATE homes SET node_id = nodes.node_id, epoch = homes.epoch + 1 FROM ({_TAKER.format('$4')}) AS nodes"
                f" WHERE session_id = $1 AND homes.node_id = $2 AND homes.epoch = $3 RETURNING {_LEASE}",
                *(
                    database.escape_nul(lease.session_id),
                    database.escape_nul(lease.node_id),
                    lease.epoch,
                    database.escape_nul(to_node_id),
                ),
            )
        )

    async def release(self, lease: cluster.Lease) -> bool:
        rows = await self._fetch_rows(
            "UPDATE homes SET node_id = NULL, epoch = epoch + 1"
            " WHERE session_id = $1 AND node_id = $2 AND epoch = $3 RETURNING 1",
            *(database.escape_nul(lease.session_id), database.escape_nul(lease.node_id), lease.epoch),
        )
        return bool(rows)

    async def take_over(self, node_id: str, limit: int) -> list[cluster.Lease]:
        async def work(connection: PostgresConnection) -> list[Any]:
            # The silent nodes are listed before any session is read: a session that got a new owner meanwhile is left to it.
            silent = [owner for (owner,) in await connection.fetch(_SILENT_OWNERS)]
            return await connection.fetch(
                f"WITH taker AS ({_TAKER.format('$1')}), orphans AS ("
                "   SELECT homes.session_id FROM sessions JOIN homes USING (session_id)"
                "   WHERE is_under_way(sessions.state, sessions.card) AND EXISTS (SELECT FROM taker)"
                "     AND (homes.node_id IS NULL OR homes.node_id = ANY ($3))"
                "   ORDER BY session_id LIMIT $2 FOR UPDATE OF homes SKIP LOCKED)"
                " UPDATE homes SET node_id = nodes.node_id, epoch = homes.epoch + 1 FROM orphans, taker AS nodes"
                f" WHERE homes.session_id = orphans.session_id RETURNING {_LEASE}",
                *(database.escape_nul(node_id), limit, silent),
            )

        return sorted(map(_make_lease, await self._run_transaction(work)), key=lambda lease: lease.session_id)

    async def release_silent(self, limit: int) -> int:
        async def work(connection: PostgresConnection) -> int:
            silent = [owner for (owner,) in await connection.fetch(_SILENT_OWNERS)]
            if not silent:
                return 0
            freed = await connection.fetch(
                "WITH orphans AS ("
                f"   SELECT session_id FROM homes WHERE node_id = ANY ($1) AND NOT EXISTS ({_UNDER_WAY})"
                "   ORDER BY session_id LIMIT $2 FOR UPDATE OF homes SKIP LOCKED)"
                " UPDATE homes SET node_id = NULL, epoch = epoch + 1 FROM orphans"
                " WHERE homes.session_id = orphans.session_id RETURNING 1",
                *(silent, limit),
            )
            return len(freed)

        return await self._run_transaction(work)

    async def find_owner(self, session_id: str) -> cluster.Lease | None:
        return next(iter(await self.find_owners([session_id])), None)

    async def find_owners(self, session_ids: Sequence[str]) -> list[cluster.Lease]:
        rows = await self._fetch_rows(
            f"SELECT {_LEASE} FROM homes JOIN nodes USING (node_id) WHERE session_id = ANY ($1)",
            [database.escape_nul(session_id) for session_id in session_ids],
        )
        return [_make_lease(row) for row in rows]

    async def list_owned(self, node_id: str, *, limit: int, after: str = "") -> list[cluster.Lease]:
        rows = await self._fetch_rows(
            f"SELECT {_LEASE} FROM homes JOIN nodes USING (node_id) WHERE node_id = $1 AND session_id > $2"
            " ORDER BY session_id LIMIT $3",
            *(database.escape_nul(node_id), database.escape_nul(after), limit),
        )
        return [_make_lease(row) for row in rows]


async def _release_all(connection: PostgresConnection, node_id: str) -> int:
    """Frees all sessions of the node; returns their number."""
    rows = await connection.fetch(
        "UPDATE homes SET node_id = NULL, epoch = epoch + 1 WHERE node_id = $1 RETURNING 1", database.escape_nul(node_id)
    )
    return len(rows)


def _make_node(row: Any) -> cluster.Node:
    node_id, address, name, version, joined_at_ms, expires_at_ms, is_alive, draining, sessions = row
    return cluster.Node(
        node_id=database.unescape_nul(node_id),
        address=database.unescape_nul(address),
        joined_at_ms=joined_at_ms,
        expires_at_ms=expires_at_ms,
        is_alive=is_alive,
        sessions=sessions,
        name=database.unescape_nul(name),
        version=database.unescape_nul(version),
        draining=draining,
    )


def _make_single_lease(rows: list[Any]) -> cluster.Lease | None:
    return _make_lease(rows[0]) if rows else None


def _make_lease(row: Any) -> cluster.Lease:
    session_id, node_id, epoch, expires_at_ms = row
    return cluster.Lease(database.unescape_nul(session_id), database.unescape_nul(node_id), epoch, expires_at_ms)


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except errors.JournalUnavailable as problem:
        raise cluster.LeasesUnavailable(problem.detail or "", hint=problem.hint) from problem
    except Exception as problem:
        if not database.is_database_error(problem):
            raise
        raise cluster.LeasesUnavailable(database.summarize_error(problem)) from problem
