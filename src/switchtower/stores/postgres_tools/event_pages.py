"""A session's rows in pages, bounded by rows and by bytes on the server's side."""

from collections.abc import AsyncIterator

from switchtower.stores import strips
from switchtower.stores.postgres import names
from switchtower.stores.postgres.connections import Connection

_ROWS = 2_000
_BYTES = 2_097_152
# A row belongs to the page if those before it do not fill it. How long a value is, is known without reading it.
_PAGE = f"""
SELECT seq, count, ts_ms, run_id, kind, data FROM (
    SELECT *, sum(octet_length(data)) OVER (ORDER BY seq) - octet_length(data) AS bytes_before FROM (
        SELECT * FROM events WHERE sid = $1 AND seq > $2 ORDER BY seq LIMIT {_ROWS}) AS rows) AS page
WHERE bytes_before < {_BYTES} ORDER BY seq
"""  # noqa: S608 - made of what is written here


async def of(connection: Connection, sid: int, after_seq: int = -1) -> AsyncIterator[list[strips.Row]]:
    while rows := await connection.fetch(_PAGE, sid, after_seq):
        yield [(seq, count, ts_ms, _name(run_id), kind, data) for seq, count, ts_ms, run_id, kind, data in rows]
        after_seq = rows[-1][0]


def _name(run_id: str | None) -> str | None:
    return None if run_id is None else names.got(run_id)
