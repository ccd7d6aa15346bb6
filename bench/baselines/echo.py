"""Answers pings and does nothing else: lines in, typed structs decoded and encoded, lines out."""

import asyncio
import sys
import time
from typing import cast

import msgspec
import uvloop
from msgspec import Struct


class Nothing(Struct):
    pass


class Request(Struct):
    v: str
    kind: str
    requestId: str
    type: str
    payload: Nothing
    sessionId: str | None = None


class Pong(Struct):
    pong: bool
    ts: int


class Response(Struct):
    v: str
    kind: str
    requestId: str
    type: str
    ok: bool
    payload: Pong
    error: None


_decode = msgspec.json.Decoder(Request).decode
_encode = msgspec.json.Encoder().encode


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._unfinished = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        if lines:
            self._transport.write(b"\n".join([_answer(line) for line in lines]) + b"\n")


def _answer(line: bytes) -> bytes:
    request = _decode(line)
    pong = Pong(True, time.time_ns() // 1_000_000)
    return _encode(Response(request.v, "response", request.requestId, request.type, True, pong, None))


async def serve(socket: str) -> None:
    server = await asyncio.get_running_loop().create_unix_server(Echo, socket)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1]))
