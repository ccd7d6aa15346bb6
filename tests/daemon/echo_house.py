"""A house in place of pi's: it greets, says every frame back, and keeps who came. For trying the doors alone."""

import asyncio
import json
from typing import Any

from switchtower.core.roles import Access
from switchtower.protocols.pi.server import PiServer
from switchtower.transports.stream import Packet, Stream


class EchoConnection:
    stream: Stream

    def __init__(self, echo_pi_server: "EchoPiServer", greeting: dict[str, Any]) -> None:
        self.server = echo_pi_server
        self.greeting = greeting
        self.closed = asyncio.Event()

    def send_line(self, **message: Any) -> None:
        self.stream.send(Packet([json.dumps(message).encode()]))

    def on_connected(self, stream: Stream) -> None:
        self.stream = stream
        self.server.peers.append(self)
        self.send_line(type="server_ready", **self.greeting)

    def on_frames(self, frames: list[bytes]) -> None:
        self.stream.send(Packet(frames))

    def on_oversized_frame(self, problem: str) -> None:
        self.send_line(type="response", success=False, error=problem)

    def on_writable(self) -> None: ...

    def on_disconnected(self) -> None:
        self.closed.set()


class RefusedConnection(EchoConnection):
    """Not let in."""

    def __init__(self, echo_pi_server: "EchoPiServer", code: int, reason: str) -> None:
        super().__init__(echo_pi_server, {})
        self.goodbye = (code, reason)

    def on_connected(self, stream: Stream) -> None:
        stream.close(*self.goodbye)


class EchoPiServer(PiServer):
    def __init__(self, *_: object, **__: object) -> None:
        self.peers: list[EchoConnection] = []

    async def open(self) -> None: ...

    def accept(self, access: Access, *, namespace: str = "", lifecycle: bool = True, cwd: str | None = None) -> EchoConnection:
        return EchoConnection(self, {"as": access.name, "via": access.via, "namespace": namespace, "lifecycle": lifecycle})

    def refuse(self, code: int, reason: str) -> EchoConnection:
        return RefusedConnection(self, code, reason)

    async def shut_down(self, timeout_s: float) -> None:
        for peer in self.peers:
            if not peer.closed.is_set():
                peer.send_line(type="server_shutdown", timeout=timeout_s)
