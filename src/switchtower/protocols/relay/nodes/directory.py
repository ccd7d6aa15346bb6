"""Which node is which host in relay's words. A node that has gone is remembered: until another has taken its sessions over they
are still of its machine."""

from collections import OrderedDict
from collections.abc import Callable

from switchtower.transports.mesh.ports import Mesh, MeshPeer

MAX_REMEMBERED = 1_000


class NodeDirectory:
    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._host_ids: OrderedDict[str, str] = OrderedDict()
        """By node. One that starts again is a new node on the same host."""
        self._unwatch: Callable[[], None] = lambda: None

    def open(self) -> None:
        self._unwatch = self._mesh.watch(self._on_node_connected, lambda peer: None)

    def close(self) -> None:
        self._unwatch()

    def list_other_nodes(self) -> list[MeshPeer]:
        """Those that can be spoken to, by name. A host is listed once, also if it has started again."""
        peers = sorted(self._mesh.peers.values(), key=lambda peer: peer.node_id)
        found = {peer.host_id: peer for peer in peers if peer.host_id != self._mesh.local_peer.host_id}
        return sorted(found.values(), key=lambda peer: (peer.name, peer.host_id))

    def get_host_id(self, home: str | None) -> str:
        """The host that sessions with this home live on. Without one they are anybody's, so ours."""
        if home is None or home == self._mesh.local_peer.node_id:
            return self._mesh.local_peer.host_id
        # One that was never met has no other name that we could tell.
        return self._host_ids.get(home, home)

    def find_node(self, host_id: str) -> str | None:
        """The other node that is this host, if it can be spoken to."""
        # Ids of nodes grow with time: of one that started again, the one that died may still seem to be there.
        return max((node_id for node_id, peer in self._mesh.peers.items() if peer.host_id == host_id), default=None)

    def is_remembered(self, host_id: str) -> bool:
        return host_id in self._host_ids.values()

    def _on_node_connected(self, peer: MeshPeer) -> None:
        self._host_ids[peer.node_id] = peer.host_id
        self._host_ids.move_to_end(peer.node_id)
        if len(self._host_ids) > MAX_REMEMBERED:
            self._host_ids.popitem(last=False)
