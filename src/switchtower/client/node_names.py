"""What people call the nodes that sessions live on. Where there is but one node, nobody needs to be told."""

from collections import Counter
from collections.abc import Sequence

from switchtower.client import errors
from switchtower.client.client import DaemonClient
from switchtower.protocols.push import listing_messages

_SHORT_ID_LENGTH = 6


class NodeNames:
    """Pure: made from one answer."""

    def __init__(self, nodes: Sequence[listing_messages.Node]) -> None:
        self.nodes = nodes
        called = Counter(node.name for node in nodes)
        # Two on one machine, or one that was started again, may have the same name.
        self._names = {
            node.id: node.name if called[node.name] == 1 else f"{node.name} …{node.id[-_SHORT_ID_LENGTH:]}" for node in nodes
        }

    @property
    def has_several(self) -> bool:
        return len(self.nodes) > 1

    @property
    def own_node(self) -> listing_messages.Node | None:
        """The node that was asked."""
        return next((node for node in self.nodes if node.isThis), None)

    def get_name(self, node_id: str) -> str:
        """Also of one that has been forgotten since."""
        return self._names.get(node_id, f"…{node_id[-_SHORT_ID_LENGTH:]}")

    def format_owner(self, node_id: str | None) -> str:
        """Nothing where it would tell nobody anything: there is no other node, or nobody has the session."""
        return self.get_name(node_id) if self.has_several and node_id is not None else ""


NO_NODES = NodeNames(())


async def fetch_node_names(client: DaemonClient) -> NodeNames:
    """For a list that can do without: nobody's name when they cannot be told now."""
    try:
        return NodeNames(await client.list_nodes())
    except errors.RequestFailed:
        return NO_NODES
