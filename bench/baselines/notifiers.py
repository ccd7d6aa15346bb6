"""So many connections that commit a small row and tell of it, each as fast as it can: commits a second of all of them.

A transaction that tells something holds a lock of the server's while it is made durable, so they take turns.
"""

import asyncio
import sys
import time
from typing import Any

import msgspec

from bench.baselines.notify import CHANNEL, TEXT


async def main(dsn: str, writers: int, seconds: float) -> Any:
    import asyncpg

    connections = [await asyncpg.connect(dsn) for _ in range(writers)]
    await connections[0].execute("CREATE TABLE IF NOT EXISTS public.noticed (at bigint)")
    query = (
        "WITH stored AS (INSERT INTO public.noticed VALUES ($1) RETURNING at)"
        f" SELECT pg_notify('{CHANNEL}', $2 || $1::text) FROM stored"
    )
    ends = time.perf_counter() + seconds

    async def write(number: int) -> int:
        statement = await connections[number].prepare(query)
        commits = 0
        while time.perf_counter() < ends:
            await statement.fetch(number * 1_000_000 + commits, TEXT)
            commits += 1
        return commits

    commits = sum(await asyncio.gather(*map(write, range(writers))))
    for connection in connections:
        await connection.close()
    return {"per_second": commits / seconds, "commits": commits}


if __name__ == "__main__":
    import uvloop

    print(msgspec.json.encode(uvloop.run(main(**msgspec.json.decode(sys.argv[1])))).decode())
