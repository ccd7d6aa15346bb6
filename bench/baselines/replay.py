"""Bare replay: pages of ready-made frames, selected from SQLite and written to the socket as they are."""

import asyncio
import sqlite3
import sys
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from bench import wire
from bench.baselines import tables
from switchtower.protocols.push import encoder
from switchtower.stores.sqlite import database

PAGE = 500
OUTPUT_LIMIT = 1_048_576


class Replayer(asyncio.Protocol):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._free = asyncio.Event()
        self._free.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=OUTPUT_LIMIT)

    def data_received(self, data: bytes) -> None:
        self._task = asyncio.get_running_loop().create_task(self._replay())

    def pause_writing(self) -> None:
        self._free.clear()

    def resume_writing(self) -> None:
        self._free.set()

    async def _replay(self) -> None:
        after = 0
        while page := self._connection.execute(
            "SELECT seq, data FROM events WHERE sid = 1 AND seq > ? ORDER BY seq LIMIT ?", (after, PAGE)
        ).fetchall():
            after = page[-1][0]
            self._transport.write(b"\n".join([frame for _, frame in page]) + b"\n")
            await self._free.wait()


def _store(journal: Path, events: int) -> None:
    """The frames where the journal keeps its events, so that what is read has the same shape."""
    connection = database.open_for_writing(journal)
    tables.make(connection)
    stored = wire.make_entries(events - 3)
    frames = encoder.encode_batch(wire.SESSION_ID, stored)
    rows = [(1, *entry[:4], frame) for entry, frame in zip(stored, frames, strict=True)]
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.execute("COMMIT")
    connection.close()


async def serve(socket: str, journal: str, events: int) -> None:
    if not Path(journal).exists():
        _store(Path(journal), events)
    connection = database.open_for_reading(Path(journal))
    server = await asyncio.get_running_loop().create_unix_server(lambda: Replayer(connection), socket)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1], **msgspec.json.decode(sys.argv[2])))
