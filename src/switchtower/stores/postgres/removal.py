"""Takes a session out of the database, a piece at a time, so that no transaction is long."""

from switchtower.stores.postgres import names
from switchtower.stores.postgres.connections import PostgresConnection
from switchtower.stores.postgres.pool import Pool

_PIECE = 2_000


async def delete_session(pool: Pool, session_id: str) -> int:
    """Its row goes last: until then a restart finds it, and goes on. Returns how many entries went."""
    rows = await pool.fetch("SELECT sid FROM homes WHERE session_id = $1", names.escape_nul(session_id))
    if not rows:
        return 0
    sid = rows[0][0]
    removed = 0
    while piece := await pool.run_transaction(lambda connection: _delete_piece(connection, sid)):
        removed += piece
    await pool.run_transaction(lambda connection: _delete_rest(connection, sid, names.escape_nul(session_id)))
    return removed


async def _delete_piece(connection: PostgresConnection, sid: int) -> int:
    entries: int | None = await connection.fetchval(
        "WITH gone AS (DELETE FROM events WHERE sid = $1 AND seq <= (SELECT max(seq) FROM"
        " (SELECT seq FROM events WHERE sid = $1 ORDER BY seq LIMIT $2) AS piece) RETURNING count) SELECT sum(count) FROM gone",
        *(sid, _PIECE),
    )
    return entries or 0


async def _delete_rest(connection: PostgresConnection, sid: int, name: str) -> None:
    await connection.execute("DELETE FROM homes WHERE sid = $1 AND session_id = $2", sid, name)
    await connection.execute("DELETE FROM events WHERE sid = $1", sid)  # what came while the pieces went
    for table in ("snapshots", "words", "words_read", "sessions"):
        await connection.execute(f"DELETE FROM {table} WHERE sid = $1", sid)  # noqa: S608 - the names are written here
    await connection.execute("DELETE FROM receipts WHERE scope = $1", name)
