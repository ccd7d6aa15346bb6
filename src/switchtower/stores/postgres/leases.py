"""The homes of sessions in PostgreSQL, in the row that every append to a session takes: a takeover and an append of the old
home cannot pass each other unseen. Time is the database's: what nodes believe of it plays no part.
"""

# ruff: noqa: S608 - what queries are put together from is written in this file

import contextlib
from collections.abc import Iterator
from typing import Any

from switchtower.core import errors, leases
from switchtower.stores.postgres import connections, names, schema
from switchtower.stores.postgres.connections import Connection
from switchtower.stores.postgres.pool import Pool

PATIENCE = 5.0
_CONNECTIONS = 2

_IN = "clock_timestamp() + $2 * interval '1 millisecond'"
_MS = "(extract(epoch FROM {0}) * 1000)::bigint"
_LEASE = f"homes.session_id, homes.node_id, homes.epoch, {_MS.format('nodes.expires_at')}"
# `now()` is when the transaction began: a node is silent only if it was so before anybody waited for a row.
_SILENT = "EXISTS (SELECT FROM nodes WHERE nodes.node_id = homes.node_id AND nodes.expires_at <= now())"
_ALIVE = "SELECT node_id, expires_at FROM nodes WHERE node_id = {0} AND expires_at > now()"


class PostgresLeases:
    """Implements `leases.Leases`."""

    def __init__(self, dsn: str, *, patience: float = PATIENCE) -> None:
        self._dsn = dsn
        self._patience = patience
        self._pool: Pool | None = None

    async def open(self) -> None:
        pool = Pool(self._dsn, most=_CONNECTIONS, patience=self._patience)
        with _telling():
            await pool.open(schema.migrate)
        self._pool = pool

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _rows(self, query: str, *values: Any) -> list[Any]:
        """Of one statement, which changes something or not: it is safe to ask any of these again."""
        if self._pool is None:
            raise leases.LeasesUnavailable("they are not open")

        async def work(connection: Connection) -> list[Any]:
            return await connection.fetch(query, *values)

        with _telling():
            return await self._pool.change(work)

    async def join(self, node_id: str, address: str, lasts_ms: int) -> None:
        await self._rows(
            f"INSERT INTO nodes VALUES ($1, $3, clock_timestamp(), {_IN})"
            " ON CONFLICT (node_id) DO UPDATE SET address = excluded.address, expires_at = excluded.expires_at",
            *(names.put(node_id), lasts_ms, names.put(address)),
        )

    async def renew(self, node_id: str, lasts_ms: int) -> leases.Renewal:
        for (was_alive,) in await self._rows(
            "WITH before AS ("
            "   SELECT node_id, expires_at > clock_timestamp() AS was_alive FROM nodes WHERE node_id = $1 FOR UPDATE)"
            f" UPDATE nodes SET expires_at = {_IN} FROM before WHERE nodes.node_id = before.node_id RETURNING was_alive",
            *(names.put(node_id), lasts_ms),
        ):
            return leases.Renewal.KEPT if was_alive else leases.Renewal.LATE
        return leases.Renewal.UNKNOWN

    async def leave(self, node_id: str) -> int:
        rows = await self._rows(
            "WITH freed AS (UPDATE homes SET node_id = NULL, epoch = epoch + 1 WHERE node_id = $1 RETURNING 1),"
            " gone AS (DELETE FROM nodes WHERE node_id = $1) SELECT count(*) FROM freed",
            names.put(node_id),
        )
        return int(rows[0][0])

    async def nodes(self) -> list[leases.Node]:
        rows = await self._rows(
            f"SELECT node_id, address, {_MS.format('joined_at')}, {_MS.format('expires_at')}, expires_at > clock_timestamp(),"
            " (SELECT count(*) FROM homes WHERE homes.node_id = nodes.node_id) FROM nodes ORDER BY node_id"
        )
        return [leases.Node(names.got(node_id), names.got(address), *rest) for node_id, address, *rest in rows]

    async def forget_nodes(self, silent_for_ms: int) -> int:
        rows = await self._rows(
            "DELETE FROM nodes WHERE expires_at <= now() - $1 * interval '1 millisecond'"
            " AND NOT EXISTS (SELECT FROM homes WHERE homes.node_id = nodes.node_id) RETURNING 1",
            silent_for_ms,
        )
        return len(rows)

    async def acquire(self, session_id: str, node_id: str) -> leases.Lease | None:
        return _one(
            await self._rows(
                f"WITH taker AS ({_ALIVE.format('$2')}), taken AS ("
                " INSERT INTO homes (session_id, epoch, node_id) SELECT $1, 1, node_id FROM taker"
                " ON CONFLICT (session_id) DO UPDATE SET node_id = excluded.node_id,"
                "   epoch = CASE WHEN homes.node_id = excluded.node_id THEN homes.epoch ELSE homes.epoch + 1 END"
                f" WHERE homes.node_id IS NULL OR homes.node_id = excluded.node_id OR {_SILENT}"
                " RETURNING session_id, node_id, epoch)"
                f" SELECT session_id, node_id, epoch, {_MS.format('expires_at')} FROM taken JOIN taker USING (node_id)",
                *(names.put(session_id), names.put(node_id)),
            )
        )

    async def hand_over(self, lease: leases.Lease, to_node_id: str) -> leases.Lease | None:
        return _one(
            await self._rows(
                f"UPDATE homes SET node_id = nodes.node_id, epoch = homes.epoch + 1 FROM ({_ALIVE.format('$4')}) AS nodes"
                f" WHERE session_id = $1 AND homes.node_id = $2 AND homes.epoch = $3 RETURNING {_LEASE}",
                *(names.put(lease.session_id), names.put(lease.node_id), lease.epoch, names.put(to_node_id)),
            )
        )

    async def release(self, lease: leases.Lease) -> bool:
        rows = await self._rows(
            "UPDATE homes SET node_id = NULL, epoch = epoch + 1"
            " WHERE session_id = $1 AND node_id = $2 AND epoch = $3 RETURNING 1",
            *(names.put(lease.session_id), names.put(lease.node_id), lease.epoch),
        )
        return bool(rows)

    async def take_over(self, node_id: str, limit: int) -> list[leases.Lease]:
        rows = await self._rows(
            f"WITH taker AS ({_ALIVE.format('$1')}), orphans AS ("
            "   SELECT session_id FROM homes JOIN nodes AS silent USING (node_id)"
            "   WHERE silent.expires_at <= now() AND EXISTS (SELECT FROM taker)"
            "   ORDER BY session_id LIMIT $2 FOR UPDATE OF homes SKIP LOCKED)"
            " UPDATE homes SET node_id = nodes.node_id, epoch = homes.epoch + 1 FROM orphans, taker AS nodes"
            f" WHERE homes.session_id = orphans.session_id RETURNING {_LEASE}",
            *(names.put(node_id), limit),
        )
        return sorted(map(_lease, rows), key=lambda lease: lease.session_id)

    async def owner(self, session_id: str) -> leases.Lease | None:
        return _one(
            await self._rows(
                f"SELECT {_LEASE} FROM homes JOIN nodes USING (node_id) WHERE session_id = $1", names.put(session_id)
            )
        )

    async def owned(self, node_id: str, *, limit: int, after: str = "") -> list[leases.Lease]:
        rows = await self._rows(
            f"SELECT {_LEASE} FROM homes JOIN nodes USING (node_id) WHERE node_id = $1 AND session_id > $2"
            " ORDER BY session_id LIMIT $3",
            *(names.put(node_id), names.put(after), limit),
        )
        return [_lease(row) for row in rows]


def _one(rows: list[Any]) -> leases.Lease | None:
    return _lease(rows[0]) if rows else None


def _lease(row: Any) -> leases.Lease:
    session_id, node_id, epoch, expires_at_ms = row
    return leases.Lease(names.got(session_id), names.got(node_id), epoch, expires_at_ms)


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except errors.JournalUnavailable as problem:
        raise leases.LeasesUnavailable(problem.detail or "", hint=problem.hint) from problem
    except Exception as problem:
        if not connections.is_of_the_database(problem):
            raise
        raise leases.LeasesUnavailable(connections.said(problem)) from problem
