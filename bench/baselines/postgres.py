"""Bare batched inserts with the same library: one plain table, one row an event, one statement and one commit a batch. It checks
nothing and tells nobody.
"""

import statistics
import sys
import time
from typing import Any

import msgspec

EVENT = b'{"code":"CODE","message":"' + b"x" * 272 + b'"}'
PIECE = b'{"text":"' + b"word " * 6 + b'"}'
"""A stretch of streamed text as a model gives it."""
NOON = 1_760_000_000_000


async def main(*, dsn: str, count: int, batch: int, streamed: bool) -> Any:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS public.bare (sid bigint, seq bigint, ts_ms bigint, run_id text, kind text, data bytea,"
        " PRIMARY KEY (sid, seq))"
    )
    insert = await connection.prepare(
        "INSERT INTO public.bare"
        " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bytea[])"
    )
    sid = await connection.fetchval("SELECT coalesce(max(sid), 0) + 1 FROM public.bare")
    data = PIECE if streamed else EVENT
    waits = []
    began = time.perf_counter()
    for first in range(0, count, batch):
        length = min(batch, count - first)
        asked = time.perf_counter()
        columns = [sid] * length, list(range(first, first + length)), [NOON] * length
        await insert.fetch(*columns, ["run_1"] * length, ["text.delta"] * length, [data] * length)
        waits.append(time.perf_counter() - asked)
    took = time.perf_counter() - began
    await connection.close()
    return {"per_second": count / took, "median_ms": statistics.median(waits) * 1_000}


if __name__ == "__main__":
    import uvloop

    print(msgspec.json.encode(uvloop.run(main(**msgspec.json.decode(sys.argv[1])))).decode())
