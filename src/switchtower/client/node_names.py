"""Display names of the nodes that own sessions. With a single node the names are empty."""

from collections import Counter
from collections.abc import Sequence

from switchtower.client import errors
from switchtower.client.client import DaemonClient
from switchtower.protocols.push import listing_messages

_SHORT_ID_LENGTH = 6


class NodeNames:
    """Names computed from one list of nodes; does no I/O."""

    def __init__(self, nodes: Sequence[listing_messages.Node]) -> None:
        self.nodes = nodes
        called = Counter(node.name for node in nodes)
        # Two nodes on one machine, or a node that was restarted, may have the same name.
        self._names = {
            node.id: node.name if called[node.name] == 1 else f"{node.name} …{node.id[-_SHORT_ID_LENGTH:]}" for node in nodes
        }

    @property
    def has_several(self) -> bool:
        return len(self.nodes) > 1

    @property
    def own_node(self) -> listing_messages.Node | None:
        """The node that answered the request."""
        return next((node for node in self.nodes if node.isThis), None)

    def get_name(self, node_id: str) -> str:
        """Returns a node's name, or a short id for a node that is no longer listed."""
        return self._names.get(node_id, f"…{node_id[-_SHORT_ID_LENGTH:]}")

    def format_owner(self, node_id: str | None) -> str:
        """Returns the owner's name; empty when there is only one node or no node owns the session."""
        return self.get_name(node_id) if self.has_several and node_id is not None else ""


NO_NODES = NodeNames(())


async def fetch_node_names(client: DaemonClient) -> NodeNames:
    """Returns `NO_NODES` if the daemon refuses: a listing can be shown without node names."""
    try:
        return NodeNames(await client.list_nodes())
    except errors.RequestFailed:
        return NO_NODES
