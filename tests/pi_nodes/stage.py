"""Three nodes of one tower in this process: real leases, meshes and houses, over one runtime that all of them share.

What a client is told comes as over a socket; its connection says with which code it was closed.
"""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from tests.runtime.parts import TIMEOUT, RuntimeHarness, Work, finish_at_once

from switchtower import config
from switchtower.cluster.pi_router import ClusterPiServer, SingletonLease
from switchtower.core.roles import Access
from switchtower.daemon.pi import LazyPiServer
from switchtower.testing.memory.leases import MemoryLeases
from switchtower.testing.memory.mesh import MemoryMesh, make_cluster
from switchtower.testing.memory.stream import MemoryStream, RecordingReceiver, join_receivers
from switchtower.transports.stream import ConnectionOrigin, Receiver

OWNER = Access(name="owner", via="app", trusted=True)
LONG_MS = 600_000
Frame = dict[str, Any]


class PiNodeClient(RecordingReceiver):
    """Somebody at one node. `closed_with` is what it was told at the end."""

    theirs: MemoryStream

    def __init__(self, receiver: Receiver, *, transport: str = "memory", output_limit_bytes: int = 65_536) -> None:
        super().__init__()
        self.receiver = receiver
        self.heard: list[Frame] = []
        self._numbers = 0
        self.theirs, _ = join_receivers(
            receiver, self, origin=ConnectionOrigin(transport=transport), output_limit_bytes=output_limit_bytes
        )

    @property
    def closed_with(self) -> tuple[int, str] | None:
        return self.theirs.closed_with

    async def receive(self) -> Frame:
        async with asyncio.timeout(TIMEOUT):
            frame: Frame = msgspec.json.decode(await self.next_frame())
        self.heard.append(frame)
        return frame

    async def receive_type(self, type_: str) -> Frame:
        while True:
            if (frame := await self.receive())["type"] == type_:
                return frame

    def begin(self, type_: str, **fields: object) -> str:
        self._numbers += 1
        command = {"type": type_, "id": f"{id(self):x}-{self._numbers}", **fields}
        self.send(msgspec.json.encode(command))
        return str(command["id"])

    async def answer(self, id_: str) -> Frame:
        while True:
            frame = await self.receive()
            if frame["type"] == "response" and frame.get("id") == id_:
                return frame

    async def ask(self, type_: str, **fields: object) -> Frame:
        return await self.answer(self.begin(type_, **fields))

    async def wait_closed(self) -> tuple[int, str]:
        """How it was closed, once it was."""
        async with asyncio.timeout(TIMEOUT):
            await self.wait_until(lambda: self.closed)
        assert self.closed_with is not None, "it was closed, and not cut off"
        return self.closed_with


class PiClusterNode:
    def __init__(self, pi_cluster: "PiCluster", mesh: MemoryMesh, idle_s: float) -> None:
        self.mesh = mesh
        self.node_id = mesh.local_peer.node_id
        self.leases = MemoryLeases(beside=pi_cluster.leases)
        self.lease = SingletonLease(self.leases, self.node_id)
        self.late = LazyPiServer(pi_cluster.runtime.runtime, pi_cluster.settings, "0")
        self.holds = True
        """Whether its lease lasts, by its own clock."""
        self.pi = ClusterPiServer(self.late, self.lease, mesh, holds_lease=lambda: self.holds, idle_s=idle_s)

    async def open(self) -> None:
        await self.leases.open()
        await self.leases.join(self.node_id, self.mesh.address, LONG_MS)

    def connect(self, access: Access = OWNER, *, transport: str = "memory", **given: Any) -> PiNodeClient:
        return PiNodeClient(self.pi.accept(access, **given), transport=transport)

    async def connect_and_greet(self, access: Access = OWNER, **given: Any) -> PiNodeClient:
        client = self.connect(access, **given)
        assert (await client.receive())["type"] == "server_ready"
        return client

    async def crash(self) -> None:
        """Without a word: its connections break, and it is silent from now on."""
        await self.mesh.close()
        await self.leases.renew(self.node_id, 0)


class PiCluster:
    def __init__(self, home: Path, work: Work = finish_at_once, *, idle_s: float = 3_600.0) -> None:
        self.settings = config.Settings(home=home, pi_session_rate=0, pi_client_rate=0)
        self.runtime = RuntimeHarness(work)
        self.leases = MemoryLeases()
        self.nodes = [PiClusterNode(self, mesh, idle_s) for mesh in make_cluster(3)]

    async def open(self) -> None:
        await self.runtime.open()
        await self.leases.open()
        for node in self.nodes:
            await node.open()

    async def close(self) -> None:
        for node in self.nodes:
            await node.pi.close()
            await node.mesh.close()
        await self.runtime.close()

    async def start_session(self, client: PiNodeClient) -> str:
        made = await client.ask("create_session", cwd="/work")
        return str(made["data"]["sessionId"])
