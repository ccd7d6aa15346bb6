"""Writes ready-made bytes to every connected socket, chunk by chunk, when one of them sends a message.

Answers just enough of everything else for a load to believe in it. It waits for a socket only when that one's buffer is full.
With `journal` given, each chunk's rows are committed first, on the same thread.
"""

import asyncio
import sys
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from bench import wire
from bench.baselines import tables
from switchtower.stores.sqlite import database

OUTPUT_LIMIT = 1_048_576


class Subscriber(asyncio.Protocol):
    def __init__(self, broadcast: "Broadcast") -> None:
        self.free = asyncio.Event()
        self.free.set()
        self._broadcast = broadcast

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=OUTPUT_LIMIT)
        self._broadcast.subscribers.append(self)

    def data_received(self, data: bytes) -> None:
        if b'"send_user_message"' in data:
            self._broadcast.start()
        else:
            self.transport.write(wire.make_canned_answer(data) + b"\n")

    def pause_writing(self) -> None:
        self.free.clear()

    def resume_writing(self) -> None:
        self.free.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._broadcast.subscribers.remove(self)


class Broadcast:
    def __init__(self, batches: list[int], journal: str | None) -> None:
        self.subscribers: list[Subscriber] = []
        self._chunks = [b"\n".join(frames) + b"\n" for frames in wire.make_frames(batches)]
        self._rows = wire.make_rows(batches) if journal else []
        if journal:
            self._connection = database.open_for_writing(Path(journal))
            tables.make(self._connection)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        for place, chunk in enumerate(self._chunks):
            if self._rows:
                self._connection.execute("BEGIN")
                self._connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", self._rows[place])
                self._connection.execute("COMMIT")
            for subscriber in self.subscribers:
                if not subscriber.free.is_set():
                    await subscriber.free.wait()
                subscriber.transport.write(chunk)
            await asyncio.sleep(0)


async def serve(socket: str, batches: list[int], journal: str | None = None) -> None:
    broadcast = Broadcast(batches, journal)
    server = await asyncio.get_running_loop().create_unix_server(lambda: Subscriber(broadcast), socket)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1], **msgspec.json.decode(sys.argv[2])))
