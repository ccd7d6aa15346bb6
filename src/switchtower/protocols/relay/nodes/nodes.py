"""The other nodes of a tower, as the hub uses them: who they are, what they are asked, and which hosts they have."""

import asyncio

from switchtower.protocols.relay import messages
from switchtower.protocols.relay.host.rpc import HostRpc
from switchtower.protocols.relay.hub.roster import Roster
from switchtower.protocols.relay.nodes.calls import FindCard, NodeCalls
from switchtower.protocols.relay.nodes.directory import Directory
from switchtower.protocols.relay.nodes.reach import Keeper, Reach
from switchtower.transports.mesh.ports import Mesh


class Nodes:
    def __init__(self, mesh: Mesh, local: HostRpc, find_card: FindCard) -> None:
        self.directory = Directory(mesh)
        self.calls = NodeCalls(mesh, local, find_card)
        self.reach = Reach(mesh)

    def open(self, roster: Roster, keeper: Keeper) -> None:
        self.directory.open()
        self.calls.open()
        self.reach.open(roster, keeper)

    async def close(self) -> None:
        self.directory.close()
        await asyncio.gather(self.calls.close(), self.reach.close())

    def rows(self) -> tuple[messages.HostRow, ...]:
        return tuple(
            messages.HostRow(id=peer.host_id, name=peer.name, last_seen_at=None, online=True, is_node=True)
            for peer in self.directory.others()
        )
