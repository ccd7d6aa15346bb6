"""Appends to the journal in PostgreSQL, from many sessions at once. Tells how many events a second were durable, and in how many
commits. Each session waits for its append before it makes the next, as a lane does.
"""

import asyncio
import statistics
import sys
import time
from typing import Any

import msgspec

from bench.baselines.postgres import EVENT, PIECE
from switchtower.core import events
from switchtower.core.ports import journal
from switchtower.stores.postgres.database import connect
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.testing.session_driver import make_card

NOON = 1_760_000_000_000


async def main(*, dsn: str, sessions: int, appends: int, length: int, label: str) -> Any:
    store = PostgresJournal(dsn, node_id="node_bench")
    await store.open()
    names = [f"sess_{label}_{number:06d}" for number in range(sessions)]
    await asyncio.gather(*(store.append(journal.Append(name, 1, _make_entries(1, 1), card=make_card(name))) for name in names))
    watching = await connect(dsn)
    before = int(await watching.fetchval("SELECT sum(batch) FROM writers"))
    waits: list[float] = []

    async def session(name: str) -> None:
        head = 1
        for _ in range(appends):
            began = time.perf_counter()
            await store.append(journal.Append(name, 1, _make_entries(head + 1, length)))
            waits.append(time.perf_counter() - began)
            head += length

    began = time.perf_counter()
    await asyncio.gather(*map(session, names))
    took = time.perf_counter() - began
    commits = int(await watching.fetchval("SELECT sum(batch) FROM writers")) - before
    await watching.close()
    await store.close()
    return {"per_second": sessions * appends * length / took, "commits": commits, "median_ms": statistics.median(waits) * 1_000}


def _make_entries(first: int, length: int) -> list[journal.Entry]:
    """A single one stays for good and has its own row; many are a stretch of streamed text."""
    if length == 1:
        return [journal.Entry(first, NOON, "run_1", events.WarningRaised.kind, EVENT)]
    return [journal.Entry(seq, NOON, "run_1", events.TextDelta.kind, PIECE) for seq in range(first, first + length)]


if __name__ == "__main__":
    import uvloop

    print(msgspec.json.encode(uvloop.run(main(**msgspec.json.decode(sys.argv[1])))).decode())
