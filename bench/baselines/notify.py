"""What a NOTIFY costs with so many listeners: one connection commits a small row and tells of it, as fast as it can, and each
listener takes what it is told. Commits a second."""

import asyncio
import sys
import time
from typing import Any

import msgspec

CHANNEL = "bare_notice"
TEXT = "x" * 200
"""About as long as a notice that names four sessions."""


async def main(dsn: str, listeners: int, seconds: float, *, tell: bool) -> Any:
    import asyncpg

    heard = 0

    def hear(*_: object) -> None:
        nonlocal heard
        heard += 1

    listening = [await asyncpg.connect(dsn) for _ in range(listeners)]
    for connection in listening:
        await connection.add_listener(CHANNEL, hear)
    writing = await asyncpg.connect(dsn)
    await writing.execute("CREATE TABLE IF NOT EXISTS public.noticed (at bigint)")
    told = f", pg_notify('{CHANNEL}', $2 || $1::text)" if tell else ", length($2)"
    statement = await writing.prepare(
        f"WITH stored AS (INSERT INTO public.noticed VALUES ($1) RETURNING at) SELECT at{told} FROM stored"
    )
    commits = 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        await statement.fetch(commits, TEXT)
        commits += 1
    async with asyncio.timeout(30):
        while tell and heard < commits * listeners:
            await asyncio.sleep(0.01)
    for connection in (*listening, writing):
        await connection.close()
    return {"per_second": commits / took, "commits": commits}


if __name__ == "__main__":
    import uvloop

    print(msgspec.json.encode(uvloop.run(main(**msgspec.json.decode(sys.argv[1])))).decode())
