"""Bare picows that answers whatever it is sent with one ready-made text of a given size, and does nothing else."""

import asyncio
import sys
from pathlib import Path

import msgspec
import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server


class ReadyMade(WSListener):
    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self._answer = answer

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.disconnect()
        else:
            transport.send(WSMsgType.TEXT, self._answer)


async def serve(socket: str, port_file: str, size: int) -> None:
    answer = b'{"type":"snapshot","session_id":"sess_1","text":"%b","event_id":1}' % (b"x" * size)

    def accept(request: WSUpgradeRequest) -> WSListener:
        return ReadyMade(answer)

    server = await ws_create_server(accept, "127.0.0.1", 0)
    Path(port_file).write_text(str(server.sockets[0].getsockname()[1]))
    # Only to tell that all is ready, as the other baselines do.
    await asyncio.get_running_loop().create_unix_server(asyncio.Protocol, socket)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1], **msgspec.json.decode(sys.argv[2])))
