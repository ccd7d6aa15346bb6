"""Three nodes of one tower in this process: real leases, meshes and houses, over one runtime that all of them share.

What a client is told comes as over a socket; its connection says with which code it was closed.
"""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from tests.runtime.parts import PATIENCE, House, Work, finish_at_once

from switchtower import config
from switchtower.core.access import Access
from switchtower.daemon.pi_house import LateHouse
from switchtower.daemon.pi_nodes import PiNode
from switchtower.daemon.pi_seat import Seat
from switchtower.stores.leases_memory import MemoryLeases
from switchtower.testing.mesh_pair import MemoryMesh, ring
from switchtower.transports.pair import Inbox, MemoryStream, pair
from switchtower.transports.stream import Origin, Receiver

OWNER = Access(name="owner", via="app", trusted=True)
LONG_MS = 600_000
Frame = dict[str, Any]


class Client(Inbox):
    """Somebody at one node. `closed_with` is what it was told at the end."""

    theirs: MemoryStream

    def __init__(self, receiver: Receiver, *, transport: str = "memory", output_limit_bytes: int = 65_536) -> None:
        super().__init__()
        self.receiver = receiver
        self.heard: list[Frame] = []
        self._numbers = 0
        self.theirs, _ = pair(receiver, self, origin=Origin(transport=transport), output_limit_bytes=output_limit_bytes)

    @property
    def closed_with(self) -> tuple[int, str] | None:
        return self.theirs.closed_with

    async def hear(self) -> Frame:
        async with asyncio.timeout(PATIENCE):
            frame: Frame = msgspec.json.decode(await self.next())
        self.heard.append(frame)
        return frame

    async def hear_of(self, type_: str) -> Frame:
        while True:
            if (frame := await self.hear())["type"] == type_:
                return frame

    def begin(self, type_: str, **fields: object) -> str:
        self._numbers += 1
        command = {"type": type_, "id": f"{id(self):x}-{self._numbers}", **fields}
        self.send(msgspec.json.encode(command))
        return str(command["id"])

    async def answer(self, id_: str) -> Frame:
        while True:
            frame = await self.hear()
            if frame["type"] == "response" and frame.get("id") == id_:
                return frame

    async def ask(self, type_: str, **fields: object) -> Frame:
        return await self.answer(self.begin(type_, **fields))

    async def gone(self) -> tuple[int, str]:
        """How it was closed, once it was."""
        async with asyncio.timeout(PATIENCE):
            await self.until(lambda: self.closed)
        assert self.closed_with is not None, "it was closed, and not cut off"
        return self.closed_with


class Node:
    def __init__(self, stage: "Stage", mesh: MemoryMesh, idle_s: float) -> None:
        self.mesh = mesh
        self.node_id = mesh.me.node_id
        self.leases = MemoryLeases(beside=stage.leases)
        self.seat = Seat(self.leases, self.node_id)
        self.late = LateHouse(stage.house.runtime, stage.settings, "0")
        self.holds = True
        """Whether its lease lasts, by its own clock."""
        self.pi = PiNode(self.late, self.seat, mesh, holds=lambda: self.holds, idle_s=idle_s)

    async def open(self) -> None:
        await self.leases.open()
        await self.leases.join(self.node_id, self.mesh.address, LONG_MS)

    def client(self, access: Access = OWNER, *, transport: str = "memory", **given: Any) -> Client:
        return Client(self.pi.accept(access, **given), transport=transport)

    async def greeted(self, access: Access = OWNER, **given: Any) -> Client:
        client = self.client(access, **given)
        assert (await client.hear())["type"] == "server_ready"
        return client

    async def die(self) -> None:
        """Without a word: its connections break, and it is silent from now on."""
        await self.mesh.close()
        await self.leases.renew(self.node_id, 0)


class Stage:
    def __init__(self, home: Path, work: Work = finish_at_once, *, idle_s: float = 3_600.0) -> None:
        self.settings = config.Settings(home=home, pi_session_rate=0, pi_client_rate=0)
        self.house = House(work)
        self.leases = MemoryLeases()
        self.nodes = [Node(self, mesh, idle_s) for mesh in ring(3)]

    async def open(self) -> None:
        await self.house.open()
        await self.leases.open()
        for node in self.nodes:
            await node.open()

    async def close(self) -> None:
        for node in self.nodes:
            await node.pi.close()
            await node.mesh.close()
        await self.house.close()

    async def session(self, client: Client) -> str:
        made = await client.ask("create_session", cwd="/work")
        return str(made["data"]["sessionId"])
