"""Bare batched inserts with the same library: one plain table, one row an event, one statement and one commit a batch. It checks
nothing and tells nobody. The events are of as many sessions as ours, so that its index grows in as many places.
"""

import asyncio
import statistics
import sys
import time
from typing import Any

import msgspec

EVENT = b'{"code":"CODE","message":"' + b"x" * 272 + b'"}'
PIECE = b'{"text":"' + b"word " * 6 + b'"}'
"""A stretch of streamed text as a model gives it."""
NOON = 1_760_000_000_000
TABLE = (
    "CREATE TABLE IF NOT EXISTS public.bare (sid bigint, seq bigint, ts_ms bigint, run_id text, kind text, data bytea,"
    " PRIMARY KEY (sid, seq))"
)
INSERT = (
    "INSERT INTO public.bare SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bytea[])"
)


async def main(
    *, dsn: str, sessions: int, count: int, batch: int, streamed: bool, first_sid: int | None = None, begin_ns: int = 0
) -> Any:
    """`begin_ns`: when the clock that all processes share says so, for several that begin together."""
    import asyncpg

    connection = await asyncpg.connect(dsn)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(1)")  # several may want to make it at once
        await connection.execute(TABLE)
    insert = await connection.prepare(INSERT)
    if first_sid is None:
        first_sid = await connection.fetchval("SELECT coalesce(max(sid), 0) + 1 FROM public.bare")
    data = PIECE if streamed else EVENT
    waits = []
    await asyncio.sleep((begin_ns - time.monotonic_ns()) / 1e9)
    began_ns = time.monotonic_ns()
    for first in range(0, count, batch):
        length = min(batch, count - first)
        asked = time.perf_counter()
        numbers = range(first, first + length)
        places = [first_sid + number % sessions for number in numbers], [number // sessions for number in numbers]
        await insert.fetch(*places, [NOON] * length, ["run_1"] * length, ["text.delta"] * length, [data] * length)
        waits.append(time.perf_counter() - asked)
    ended_ns = time.monotonic_ns()
    await connection.close()
    return {
        "per_second": count / (ended_ns - began_ns) * 1e9,
        "median_ms": statistics.median(waits) * 1_000,
        "began_ns": began_ns,
        "ended_ns": ended_ns,
    }


if __name__ == "__main__":
    import uvloop

    print(msgspec.json.encode(uvloop.run(main(**msgspec.json.decode(sys.argv[1])))).decode())
