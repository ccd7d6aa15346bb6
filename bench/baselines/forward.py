"""Bare request and reply between two processes: this one reads each request of its clients and passes it on over TCP, the other
reads and answers it, and this one reads the answer and gives it to its client. Both know the frames as typed structs, as the
bare `echo` does. Told a database, the other inserts what came meanwhile as one batch and one commit before it answers.
"""

import asyncio
import subprocess
import sys
import time
from typing import Any, cast

import msgspec
import uvloop
from msgspec import Struct

from bench.baselines.postgres import INSERT, TABLE

_numbers = iter(range(1, sys.maxsize))


class Request(Struct):
    v: str
    kind: str
    requestId: str
    type: str
    payload: dict[str, str]
    sessionId: str


class Response(Struct):
    v: str
    kind: str
    requestId: str
    type: str
    ok: bool
    payload: dict[str, str]
    error: None


_decode = msgspec.json.Decoder(Request).decode
_decode_answer = msgspec.json.Decoder(Response).decode
_encode = msgspec.json.Encoder().encode


class Lines(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._unfinished = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        if lines:
            self.on_lines(lines)

    def on_lines(self, lines: list[bytes]) -> None:
        raise NotImplementedError


class ClientSide(Lines):
    """To the client. One client at a time, so that answers need no address."""

    def __init__(self, far: "UpstreamSide") -> None:
        self._far = far

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._far.client = self

    def on_lines(self, lines: list[bytes]) -> None:
        self._far.transport.write(b"".join([_encode(_decode(line)) + b"\n" for line in lines]))


class UpstreamSide(Lines):
    client: ClientSide

    def on_lines(self, lines: list[bytes]) -> None:
        self.client.transport.write(b"".join([_encode(_decode_answer(line)) + b"\n" for line in lines]))


class ReplySide(Lines):
    def __init__(self, statement: Any, *, accepted: bool) -> None:
        self._statement = statement
        self._accepted = accepted
        self._waiting: list[bytes] = []
        self._storing: asyncio.Task[None] | None = None

    def on_lines(self, lines: list[bytes]) -> None:
        if self._statement is None:
            self._answer(lines)
            return
        self._waiting += lines
        if self._storing is None:
            self._storing = asyncio.create_task(self._store())

    async def _store(self) -> None:
        while self._waiting:
            lines, self._waiting = self._waiting, []
            size = len(lines)
            sids, seqs = [_SID] * size, [next(_numbers) for _ in lines]
            await self._statement.fetch(sids, seqs, [0] * size, ["run_1"] * size, ["configured"] * size, lines)
            self._answer(lines)
        self._storing = None

    def _answer(self, lines: list[bytes]) -> None:
        self.transport.write(b"".join(map(self._reply, lines)))

    def _reply(self, line: bytes) -> bytes:
        request = _decode(line)
        return _encode(Response(request.v, "response", request.requestId, request.type, self._accepted, {}, None)) + b"\n"


_SID = time.time_ns()


async def answer(dsn: str | None) -> None:
    statement = None
    if dsn is not None:
        import asyncpg

        connection = await asyncpg.connect(dsn)
        await connection.execute(TABLE)
        statement = await connection.prepare(INSERT)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ReplySide(statement, accepted=dsn is not None), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # it ends with the process that started it


async def serve(socket: str, dsn: str | None) -> None:
    other = subprocess.Popen(
        [sys.executable, "-m", "bench.baselines.forward", msgspec.json.encode({"dsn": dsn}).decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None
    loop = asyncio.get_running_loop()
    _, far = await loop.create_connection(UpstreamSide, "127.0.0.1", int(other.stdout.readline()))
    server = await loop.create_unix_server(lambda: ClientSide(far), socket)
    await server.serve_forever()


if __name__ == "__main__":
    arguments = msgspec.json.decode(sys.argv[-1])
    uvloop.run(serve(sys.argv[1], **arguments) if len(sys.argv) > 2 else answer(**arguments))
