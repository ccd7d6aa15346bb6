"""Meshes joined in memory, for trying what speaks to another node without sockets and keys. They obey the mesh's contract.

    here, there = pair()
    there.answers("greeting", lambda node_id, body, reply: reply(b"hello " + body))

Nodes are named `node_1`, `node_2` …, and are connected when `pair` or `ring` returns; as over TCP, what is said arrives in a
later turn of the loop. `close` is the death of a node, `cut` that of its connections to one other.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from switchtower.transports.mesh.accepted import Accepted
from switchtower.transports.mesh.dialled import Dialled
from switchtower.transports.mesh.link import Limits, Link
from switchtower.transports.mesh.ports import Peer
from switchtower.transports.mesh.switchboard import Switchboard

_LIMITS = Limits(silence=3600.0)


class _Transport(asyncio.Transport):
    """One end of a connection in memory."""

    other: "_Transport"

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._coming: list[bytes] = []
        self._open = True
        self._told = False
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
        """It is never full: what is written has arrived a turn later."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def deliver(self) -> None:
        coming, self._coming = self._coming, []
        if self._open and coming:
            self._link.data_received(b"".join(coming))
        if not (self._open and self.other._open) and not self._told:
            self._told, self._open = True, False
            self._link.connection_lost(None)


class MemoryMesh(Switchboard):
    """A node among others in the same process. Unlike over TCP, a connection that was `cut` is dialled again by `meet` only."""

    def __init__(self, me: Peer, net: "dict[str, MemoryMesh]") -> None:
        super().__init__(me)
        self._net = net
        net[self.address] = self
        self._wanted: set[str] = set()

    @property
    def address(self) -> str:
        return f"memory:{self._me.node_id}"

    def meet(self, nodes: Iterable[tuple[str, str]]) -> None:
        wanted = {node_id: address for node_id, address in nodes if node_id != self._me.node_id}
        for node_id in self._wanted - wanted.keys():
            if (line := self._lines.get(node_id)) is not None:
                line.hang_up()
            self._hang_up_on_caller(node_id)
        self._wanted = set(wanted)
        for node_id, address in wanted.items():
            if node_id not in self._lines and self._net.get(self.address) is self and (there := self._net.get(address)):
                self._dial(node_id, there)

    def cut(self, node_id: str) -> None:
        """Both connections with that node break."""
        if (line := self._lines.get(node_id)) is not None:
            line.hang_up()
        self._hang_up_on_caller(node_id)

    async def close(self) -> None:
        self._net.pop(self.address, None)
        self._wanted.clear()
        for link in (*self._lines.values(), *self._callers):
            link.hang_up(politely=True)

    def _dial(self, node_id: str, there: "MemoryMesh") -> None:
        line = Dialled(self._me, _LIMITS, None, node_id, came=self._line_came, went=self._line_went)
        caller = Accepted(
            there._me,
            _LIMITS,
            None,
            there._subjects,
            made=there._callers.add,
            came=there._caller_came,
            went=there._callers.discard,
        )
        here_end, there_end = _Transport(line), _Transport(caller)
        here_end.other, there_end.other = there_end, here_end
        caller.connection_made(there_end)
        line.connection_made(here_end)
        # The hellos, now, so that who has met can speak.
        there_end.deliver()
        here_end.deliver()


def pair() -> tuple[MemoryMesh, MemoryMesh]:
    here, there = ring(2)
    return here, there


def ring(count: int, *, version: str = "0.1.0") -> list[MemoryMesh]:
    """So many nodes, each connected to all others."""
    net: dict[str, MemoryMesh] = {}
    meshes = [
        MemoryMesh(Peer(node_id=f"node_{number}", name=f"n{number}", version=version, host_id=f"host_{number}"), net)
        for number in range(1, count + 1)
    ]
    nodes = [(mesh.me.node_id, mesh.address) for mesh in meshes]
    for mesh in meshes:
        mesh.meet(nodes)
    return meshes
