"""Several nodes as clients see them: who is there, and a way to empty one. Alone, a daemon has none of this."""

from typing import Protocol

from msgspec import Struct

from switchtower.core import leases


class DrainResult(Struct, frozen=True):
    """What came of emptying a node."""

    sessions: int
    """Homes that were given up."""
    interrupted: int
    """Runs that had to be cut short, because they did not end in time."""


class ClusterNodes(Protocol):
    @property
    def node_id(self) -> str: ...

    async def list_nodes(self) -> list[leases.Node]:
        """Raises `leases.LeasesUnavailable`."""
        ...

    async def drain(self, wait_s: float) -> DrainResult:
        """Takes up nothing new, gives runs so long to end, hands the sessions to other nodes and lets clients go. The node
        stays, empty, until it is stopped. Asked again it says what came of it the first time."""
        ...
