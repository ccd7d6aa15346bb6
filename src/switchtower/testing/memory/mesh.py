"""Meshes joined in memory, for tests between nodes without sockets and keys. They obey the mesh's contract.

    here, there = make_pair()
    there.handle_requests("greeting", lambda node_id, body, reply: reply(b"hello " + body))

Nodes are named `node_1`, `node_2` …, and are connected when `make_pair` or `make_cluster` returns; as over TCP, a message
arrives in a later turn of the event loop. `close` represents the death of a node, `drop_link` the loss of its connections to
one other.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from switchtower.cluster.mesh.connections import AcceptedLink, DialledLink
from switchtower.cluster.mesh.link import LinkLimits, MeshLink
from switchtower.cluster.mesh.mesh import MeshBase
from switchtower.cluster.mesh.ports import MeshPeer

_LIMITS = LinkLimits(silence=3600.0)


class _Transport(asyncio.Transport):
    """One end of a connection in memory."""

    other: "_Transport"

    def __init__(self, link: MeshLink) -> None:
        super().__init__()
        self._link = link
        self._coming: list[bytes] = []
        self._open = True
        self._notified = False
        self._loop = asyncio.get_running_loop()

    def write(self, data: Any) -> None:
        if self._open and data:
            self.other._coming.append(bytes(data))
            self._loop.call_soon(self.other.deliver)

    def close(self) -> None:
        self._open = False
        self._loop.call_soon(self.deliver)
        self._loop.call_soon(self.other.deliver)

    def abort(self) -> None:
        self.close()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing: the buffer is never full, because written data arrives one turn later."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def deliver(self) -> None:
        coming, self._coming = self._coming, []
        if self._open and coming:
            self._link.data_received(b"".join(coming))
        if not (self._open and self.other._open) and not self._notified:
            self._notified, self._open = True, False
            self._link.connection_lost(None)


class MemoryMesh(MeshBase):
    """A node among others in the same process. Unlike over TCP, a dropped connection is dialled again by `update_nodes` only."""

    def __init__(self, me: MeshPeer, net: "dict[str, MemoryMesh]") -> None:
        super().__init__(me)
        self._net = net
        net[self.address] = self
        self._known_nodes: set[str] = set()

    @property
    def address(self) -> str:
        return f"memory:{self._local_peer.node_id}"

    def update_nodes(self, nodes: Iterable[tuple[str, str]]) -> None:
        wanted = {node_id: address for node_id, address in nodes if node_id != self._local_peer.node_id}
        for node_id in self._known_nodes - wanted.keys():
            if (line := self._dialled_links.get(node_id)) is not None:
                line.close()
            self._close_caller(node_id)
        self._known_nodes = set(wanted)
        for node_id, address in wanted.items():
            if node_id not in self._dialled_links and self._net.get(self.address) is self and (there := self._net.get(address)):
                self._dial(node_id, there)

    def drop_link(self, node_id: str) -> None:
        """Breaks both connections with that node."""
        if (line := self._dialled_links.get(node_id)) is not None:
            line.close()
        self._close_caller(node_id)

    async def close(self) -> None:
        self._net.pop(self.address, None)
        self._known_nodes.clear()
        for link in (*self._dialled_links.values(), *self._callers):
            link.close(politely=True)

    def _dial(self, node_id: str, there: "MemoryMesh") -> None:
        line = DialledLink(self._local_peer, _LIMITS, None, node_id, came=self._on_link_open, went=self._on_link_lost)
        caller = AcceptedLink(
            there._local_peer,
            _LIMITS,
            None,
            there._subjects,
            made=there._callers.add,
            came=there._on_caller_open,
            went=there._callers.discard,
        )
        here_end, there_end = _Transport(line), _Transport(caller)
        here_end.other, there_end.other = there_end, here_end
        caller.connection_made(there_end)
        line.connection_made(here_end)
        # Delivers the hellos now, so that connected nodes can send at once.
        there_end.deliver()
        here_end.deliver()


def make_pair() -> tuple[MemoryMesh, MemoryMesh]:
    here, there = make_cluster(2)
    return here, there


def make_cluster(count: int, *, version: str = "0.1.0") -> list[MemoryMesh]:
    """Returns this many nodes, each connected to all others."""
    net: dict[str, MemoryMesh] = {}
    meshes = [
        MemoryMesh(MeshPeer(node_id=f"node_{number}", name=f"n{number}", version=version, host_id=f"host_{number}"), net)
        for number in range(1, count + 1)
    ]
    nodes = [(mesh.local_peer.node_id, mesh.address) for mesh in meshes]
    for mesh in meshes:
        mesh.update_nodes(nodes)
    return meshes
