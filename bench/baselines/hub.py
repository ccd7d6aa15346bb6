"""Bare picows and SQLite: whatever frames one turn of the loop brings are inserted as one durable batch, then the last is
acknowledged. Reads of each frame only its run and its number."""

import asyncio
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server


class _Head(msgspec.Struct):
    run_id: str
    seq: int
    data: msgspec.Raw


class Hub(WSListener):
    def __init__(self, journal: sqlite3.Connection) -> None:
        super().__init__()
        self._journal = journal
        self._decode = msgspec.json.Decoder(_Head).decode
        self._rows: list[tuple[Any, ...]] = []
        self._transport: WSTransport | None = None

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.disconnect()
            return
        self._transport = transport
        head = self._decode(frame.get_payload_as_bytes())
        if not self._rows:
            asyncio.get_running_loop().call_soon(self._store)
        self._rows.append((head.run_id, head.seq, time.time_ns() // 1_000_000, bytes(head.data)))

    def _store(self) -> None:
        rows, self._rows = self._rows, []
        self._journal.execute("BEGIN")
        self._journal.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
        self._journal.execute("COMMIT")
        run_id, seq = rows[-1][:2]
        assert self._transport is not None
        ack = b'{"type":"run.ack","data":{"run_id":"%b","last_seq":%d}}' % (run_id.encode(), seq)
        self._transport.send(WSMsgType.TEXT, ack)


async def serve(socket: str, port_file: str, journal: str) -> None:
    connection = sqlite3.connect(journal, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE events (run_id, seq, ts_ms, data, PRIMARY KEY (run_id, seq)) WITHOUT ROWID")

    def accept(request: WSUpgradeRequest) -> WSListener:
        return Hub(connection)

    server = await ws_create_server(accept, "127.0.0.1", 0)
    Path(port_file).write_text(str(server.sockets[0].getsockname()[1]))
    # Only to tell that all is ready, as the other baselines do.
    await asyncio.get_running_loop().create_unix_server(asyncio.Protocol, socket)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1], **msgspec.json.decode(sys.argv[2])))
