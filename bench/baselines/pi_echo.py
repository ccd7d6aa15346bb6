"""Bare picows that answers pi commands with the frames our daemon sends for one, and does nothing else: it reads the id, and
puts it into four ready-made texts."""

import asyncio
import sys
from pathlib import Path

import msgspec
import uvloop
from msgspec import Struct
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server

READY = b'{"type":"server_ready","data":{"serverVersion":"1.0.0","protocolVersion":"1.0.0","transports":["websocket","stdio"]}}'


class Command(Struct):
    type: str
    id: str


_decode = msgspec.json.Decoder(Command).decode


class Echo(WSListener):
    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def on_ws_connected(self, transport: WSTransport) -> None:
        transport.send(WSMsgType.TEXT, READY)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.disconnect()
            return
        command = _decode(frame.get_payload_as_bytes())
        id_, type_ = command.id.encode(), command.type.encode()
        for phase in (b"accepted", b"started", b"finished"):
            ending = b',"success":true' if phase == b"finished" else b""
            event = b'{"type":"command_%b","data":{"commandId":"%b","commandType":"%b","dependsOn":[]%b}}'
            transport.send(WSMsgType.TEXT, event % (phase, id_, type_, ending))
        response = b'{"type":"response","command":"%b","success":true,"id":"%b","data":%b}'
        transport.send(WSMsgType.TEXT, response % (type_, id_, self._data))


async def serve(socket: str, port_file: str, data: str) -> None:
    def accept(request: WSUpgradeRequest) -> WSListener:
        return Echo(data.encode())

    server = await ws_create_server(accept, "127.0.0.1", 0)
    Path(port_file).write_text(str(server.sockets[0].getsockname()[1]))
    # Only to tell that all is ready, as the other baselines do.
    await asyncio.get_running_loop().create_unix_server(asyncio.Protocol, socket)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1], **msgspec.json.decode(sys.argv[2])))
