"""What people call the nodes that sessions live on. Where there is but one node, nobody needs to be told."""

from collections import Counter
from collections.abc import Sequence

from switchtower.client import errors
from switchtower.client.client import Client
from switchtower.protocols.push import node_messages

_ENOUGH_OF_AN_ID = 6


class Homes:
    """Pure: made from one answer."""

    def __init__(self, nodes: Sequence[node_messages.Node]) -> None:
        self.nodes = nodes
        called = Counter(node.name for node in nodes)
        # Two on one machine, or one that was started again, may have the same name.
        self._names = {
            node.id: node.name if called[node.name] == 1 else f"{node.name} …{node.id[-_ENOUGH_OF_AN_ID:]}" for node in nodes
        }

    @property
    def several(self) -> bool:
        return len(self.nodes) > 1

    @property
    def this(self) -> node_messages.Node | None:
        """The node that was asked."""
        return next((node for node in self.nodes if node.isThis), None)

    def name(self, node_id: str) -> str:
        """Also of one that has been forgotten since."""
        return self._names.get(node_id, f"…{node_id[-_ENOUGH_OF_AN_ID:]}")

    def shown(self, home: str | None) -> str:
        """Nothing where it would tell nobody anything: there is no other node, or nobody has the session."""
        return self.name(home) if self.several and home is not None else ""


ALONE = Homes(())


async def of(client: Client) -> Homes:
    """For a list that can do without: nobody's name when they cannot be told now."""
    try:
        return Homes(await client.nodes())
    except errors.RequestFailed:
        return ALONE
