"""The other nodes of a tower, as the hub uses them: who they are, what they are asked, and which hosts they have."""

import asyncio

from switchtower.protocols.relay import messages
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.hub.roster import ConnectedHosts
from switchtower.protocols.relay.nodes.calls import FindCard, NodeRpc
from switchtower.protocols.relay.nodes.directory import NodeDirectory
from switchtower.protocols.relay.nodes.reach import HostObserver, RemoteHosts
from switchtower.transports.mesh.ports import Mesh


class RelayNodes:
    def __init__(self, mesh: Mesh, local: HostRpcHandler, find_card: FindCard) -> None:
        self.directory = NodeDirectory(mesh)
        self.calls = NodeRpc(mesh, local, find_card)
        self.remote_hosts = RemoteHosts(mesh)

    def open(self, connected_hosts: ConnectedHosts, observer: HostObserver) -> None:
        self.directory.open()
        self.calls.open()
        self.remote_hosts.open(connected_hosts, observer)

    async def close(self) -> None:
        self.directory.close()
        await asyncio.gather(self.calls.close(), self.remote_hosts.close())

    def list_rows(self) -> tuple[messages.HostRow, ...]:
        return tuple(
            messages.HostRow(id=peer.host_id, name=peer.name, last_seen_at=None, online=True, is_node=True)
            for peer in self.directory.list_other_nodes()
        )
