"""Bare picows: one text message an event, sent to every connected socket in turn, when one of them sends a message."""

import asyncio
import sys
from pathlib import Path

import msgspec
import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server

from bench import wire

OUTPUT_LIMIT = 1_048_576


class Subscriber(WSListener):
    def __init__(self, broadcast: "Broadcast") -> None:
        super().__init__()
        self.free = asyncio.Event()
        self.free.set()
        self._broadcast = broadcast

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport
        transport.underlying_transport.set_write_buffer_limits(high=OUTPUT_LIMIT)
        self._broadcast.subscribers.append(self)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.disconnect()
        elif b'"send_user_message"' in (request := frame.get_payload_as_bytes()):
            self._broadcast.start()
        else:
            transport.send(WSMsgType.TEXT, wire.make_canned_answer(request))

    def pause_writing(self) -> None:
        self.free.clear()

    def resume_writing(self) -> None:
        self.free.set()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._broadcast.subscribers.remove(self)


class Broadcast:
    def __init__(self, batches: list[int]) -> None:
        self.subscribers: list[Subscriber] = []
        self._batches = wire.make_frames(batches)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        for batch in self._batches:
            for subscriber in self.subscribers:
                await subscriber.free.wait()
                for frame in batch:
                    subscriber.transport.send(WSMsgType.TEXT, frame)
            await asyncio.sleep(0)


async def serve(socket: str, port_file: str, batches: list[int]) -> None:
    broadcast = Broadcast(batches)

    def accept(request: WSUpgradeRequest) -> WSListener:
        return Subscriber(broadcast)

    server = await ws_create_server(accept, "127.0.0.1", 0)
    Path(port_file).write_text(str(server.sockets[0].getsockname()[1]))
    # Only to tell that all is ready, as the other baselines do.
    await asyncio.get_running_loop().create_unix_server(asyncio.Protocol, socket)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1], **msgspec.json.decode(sys.argv[2])))
