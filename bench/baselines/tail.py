"""Bare LISTEN/NOTIFY and SELECT between two processes: one inserts an event and tells of it in the same transaction, with
pauses; the other is told, and reads what is new. Microseconds from the insert, and from its commit, to the end of the SELECT.
"""

import asyncio
import subprocess
import sys
import time
from typing import Any

import msgspec

CHANNEL = "bare_moved"
TABLE = "CREATE TABLE IF NOT EXISTS public.tailed (sid bigint, seq bigint, kind text, data bytea, PRIMARY KEY (sid, seq))"
WRITE = (
    "WITH stored AS (INSERT INTO public.tailed VALUES ($1, $2, 'text.delta', $3) RETURNING seq)"
    f" SELECT pg_notify('{CHANNEL}', $1::text || ':' || stored.seq) FROM stored"
)
READ = "SELECT seq, kind, data FROM public.tailed WHERE sid = $1 AND seq > $2 ORDER BY seq LIMIT 500"
DATA = b'{"text":"lorem "}'


async def write(dsn: str, count: int, pause_us: int) -> dict[str, list[float]]:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLE)
    sid = time.time_ns()
    reader = subprocess.Popen(
        [sys.executable, "-m", "bench.baselines.tail", msgspec.json.encode({"dsn": dsn, "sid": sid, "count": count}).decode()],
        stdout=subprocess.PIPE,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline(), "it listens"
    statement = await connection.prepare(WRITE)
    asked_ns, stored_ns = [], []
    for seq in range(1, count + 1):
        await asyncio.sleep(pause_us / 1e6)
        asked_ns.append(time.monotonic_ns())
        await statement.fetch(sid, seq, DATA)
        stored_ns.append(time.monotonic_ns())
    arrived_ns: list[int] = msgspec.json.decode(reader.stdout.read())
    reader.wait()
    await connection.close()
    return {
        "from_insert": [(arrived - asked) / 1_000 for asked, arrived in zip(asked_ns, arrived_ns, strict=True)],
        "from_commit": [(arrived - stored) / 1_000 for stored, arrived in zip(stored_ns, arrived_ns, strict=True)],
    }


async def read(dsn: str, sid: int, count: int) -> list[int]:
    import asyncpg

    listening, reading = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    told = asyncio.Event()
    await listening.add_listener(CHANNEL, lambda *_: told.set())
    statement = await reading.prepare(READ)
    print(flush=True)
    arrived_ns: list[int] = []
    while len(arrived_ns) < count:
        await told.wait()
        told.clear()
        rows = await statement.fetch(sid, len(arrived_ns))
        arrived_ns += [time.monotonic_ns()] * len(rows)
    await listening.close()
    await reading.close()
    return arrived_ns


if __name__ == "__main__":
    import uvloop

    arguments: dict[str, Any] = msgspec.json.decode(sys.argv[1])
    found: Any = uvloop.run(read(**arguments) if "sid" in arguments else write(**arguments))
    sys.stdout.buffer.write(msgspec.json.encode(found))
