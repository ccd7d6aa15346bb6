"""A house in place of pi's: it greets, says every frame back, and keeps who came. For trying the doors alone."""

import asyncio
import json
from typing import Any

from switchtower.core.access import Access
from switchtower.protocols.pi.house import House
from switchtower.transports.packet import Packet
from switchtower.transports.stream import Stream


class EchoPeer:
    stream: Stream

    def __init__(self, house: "EchoHouse", greeting: dict[str, Any]) -> None:
        self.house = house
        self.greeting = greeting
        self.closed = asyncio.Event()

    def say(self, **message: Any) -> None:
        self.stream.send(Packet([json.dumps(message).encode()]))

    def connected(self, stream: Stream) -> None:
        self.stream = stream
        self.house.peers.append(self)
        self.say(type="server_ready", **self.greeting)

    def received(self, frames: list[bytes]) -> None:
        self.stream.send(Packet(frames))

    def refused(self, problem: str) -> None:
        self.say(type="response", success=False, error=problem)

    def writable_again(self) -> None: ...

    def disconnected(self) -> None:
        self.closed.set()


class Turned(EchoPeer):
    """Not let in."""

    def __init__(self, house: "EchoHouse", code: int, reason: str) -> None:
        super().__init__(house, {})
        self.goodbye = (code, reason)

    def connected(self, stream: Stream) -> None:
        stream.close(*self.goodbye)


class EchoHouse(House):
    def __init__(self, *_: object, **__: object) -> None:
        self.peers: list[EchoPeer] = []

    async def open(self) -> None: ...

    def accept(self, access: Access, *, namespace: str = "", lifecycle: bool = True, cwd: str | None = None) -> EchoPeer:
        return EchoPeer(self, {"as": access.name, "via": access.via, "namespace": namespace, "lifecycle": lifecycle})

    def refuse(self, code: int, reason: str) -> EchoPeer:
        return Turned(self, code, reason)

    async def shut_down(self, timeout_s: float) -> None:
        for peer in self.peers:
            if not peer.closed.is_set():
                peer.say(type="server_shutdown", timeout=timeout_s)
