"""The leases port: which node is the home of which session. Stores implement it; they judge by one clock, the store's own.

A node joins, and says again and again that it is there. Its sessions are its own for as long as it does: a lease lasts as long
as its node's. When a node falls silent, others take its sessions over. Each change of home raises the session's epoch, and the
journal stores nothing of an older one, so it does no harm when a node that was believed dead goes on for a while.

A node is one process from start to end: whoever starts again joins under a new id.

Several nodes as clients see them: who is there, and a way to empty one. Alone, a daemon has none of this.

The homes port: which node decides for a session, and how to ask it. A daemon that is alone has no need of it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from switchtower.core import commands
from switchtower.core.ports import session_service


class LeasesUnavailable(Exception):
    """It cannot be said which node has which session: what the database said, and a remedy if there is one."""

    def __init__(self, problem: str, *, hint: str | None = None) -> None:
        self.message = f"the homes of sessions cannot be told: {problem}"
        self.hint = hint
        super().__init__(f"{self.message}; hint: {hint}" if hint else self.message)


class Node(Struct, frozen=True):
    node_id: str
    address: str
    """Where other nodes reach it."""
    joined_at_ms: int
    expires_at_ms: int
    is_alive: bool
    """By the store's clock, when it was asked."""
    sessions: int
    """How many have it as their home."""
    name: str = ""
    """What people call it."""
    version: str = ""
    draining: bool = False
    """It gives its sessions away and takes no others."""


class Lease(Struct, frozen=True):
    session_id: str
    node_id: str
    epoch: int
    """What the session's appends carry while this lease lasts."""
    expires_at_ms: int
    """Its node's, when it was asked."""


class Renewal(StrEnum):
    KEPT = "kept"
    """In time: all that was the node's is still."""
    LATE = "late"
    """It counts as alive again, but others may have taken some of its sessions meanwhile: ask for what it owns."""
    UNKNOWN = "unknown"
    """It never joined, left, or was forgotten: nothing is its own."""


class Leases(Protocol):
    """All methods are safe to call from the event loop, and each is one transaction.

    Any of them raises `LeasesUnavailable` when the database fails it. Asking again is safe: whoever has a session already is
    given the lease that they have.
    """

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    # Nodes

    async def join(self, node_id: str, address: str, lasts_ms: int, *, name: str = "", version: str = "") -> None:
        """A new node, or a new address of one that joined."""
        ...

    async def begin_drain(self, node_id: str) -> None:
        """From now on nothing can be acquired by the node or handed to it; what it has it keeps for now."""
        ...

    async def drain(self, node_id: str) -> int:
        """From now on nothing can be acquired by the node or handed to it, and all that is its own is free; how many sessions
        those were. Its row stays, and it counts as alive while it renews."""
        ...

    async def renew(self, node_id: str, lasts_ms: int) -> Renewal:
        """For all of the node's sessions at once."""
        ...

    async def inherit(self, from_node_id: str, node_id: str) -> int:
        """A machine that starts again goes on with what it had: everything of the node that it was is this one's, in new epochs,
        and that one is gone. How many sessions those were. Nothing, when this node is not alive."""
        ...

    async def leave(self, node_id: str) -> int:
        """Everything of the node's is free; how many sessions those were."""
        ...

    async def list_nodes(self, *, counted: bool = True) -> list[Node]:
        """By id, also those that fell silent and were not forgotten yet. Not `counted`: without the numbers of their sessions,
        which cost the more the more there are."""
        ...

    async def forget_nodes(self, silent_for_ms: int) -> int:
        """Those that fell silent so long ago and own nothing any more; how many."""
        ...

    # Sessions

    async def acquire(self, session_id: str, node_id: str) -> Lease | None:
        """The session's home is this node: in a new epoch if it was free, or its node is silent. None: it is another's, or the
        node itself is not alive. A session that does not exist yet can be taken, to be begun."""
        ...

    async def acquire_all(self, session_ids: Sequence[str], node_id: str, *, begin: bool = True) -> list[Lease]:
        """As `acquire`, of many at once; those that it got. Not `begin`: only of sessions that are there."""
        ...

    async def hand_over(self, lease: Lease, to_node_id: str) -> Lease | None:
        """From its node to another, in a new epoch. None: it is not this lease any more, or the other is not alive."""
        ...

    async def release(self, lease: Lease) -> bool:
        """The session is free, and what its node may still have on the way to the journal is refused. False: it was not this
        lease any more."""
        ...

    async def take_over(self, node_id: str, limit: int) -> list[Lease]:
        """Up to so many sessions in which something is under way (by their cards: an active state, or commands that people
        run) and that have no home, or a silent one, each in a new epoch. Nodes that ask at once get different ones. Those
        that live on another host are not among them: they go on there, and whoever is asked about one acquires it."""
        ...

    async def release_silent(self, limit: int) -> int:
        """Up to so many other sessions of silent nodes lose their home; how many. Whoever is asked about one acquires it."""
        ...

    async def find_owner(self, session_id: str) -> Lease | None:
        """Also of a node that fell silent. None: it is free."""
        ...

    async def find_owners(self, session_ids: Sequence[str]) -> list[Lease]:
        """As `owner`, of many at once; those that are not free."""
        ...

    async def list_owned(self, node_id: str, *, limit: int, after: str = "") -> list[Lease]:
        """The node's sessions by id, those after the given one."""
        ...


class DrainResult(Struct, frozen=True):
    """What came of emptying a node."""

    sessions: int
    """Homes that were given up."""
    interrupted: int
    """Runs that had to be cut short, because they did not end in time."""


class ClusterNodes(Protocol):
    @property
    def node_id(self) -> str: ...

    async def list_nodes(self) -> list[Node]:
        """Raises `leases.LeasesUnavailable`."""
        ...

    async def drain(self, wait_s: float) -> DrainResult:
        """Takes up nothing new, gives runs so long to end, hands the sessions to other nodes and lets clients go. The node
        stays, empty, until it is stopped. Asked again it says what came of it the first time."""
        ...


class OwnedHere(Struct, frozen=True):
    """This node decides. Its appends carry the epoch."""

    epoch: int


class OwnedBy(Struct, frozen=True):
    """Another node does."""

    node_id: str


class Unowned(Struct, frozen=True):
    """No node does, and this one could not become it: most likely there is no such session."""


class SessionOwnership(Protocol):
    async def claim(self, session_id: str, *, begins: bool = False) -> OwnedHere | OwnedBy | Unowned:
        """The session's home is this node from now on, unless it is another's. `begins`: also of a session that is not there
        yet; without it, a made-up id leaves nothing behind.

        Raises `errors.HomeUnreachable` when neither can be: this node takes nothing up any more.
        """
        ...

    def can_reach(self, node_id: str) -> bool:
        """Whether that node can be asked right now."""
        ...

    def forward(self, node_id: str, command: commands.AnyCommand, done: session_service.OutcomeCallback) -> None:
        """Asks another node, in the order of the calls, and never answers before it returns. `done` is told `errors.Fenced` when
        that node is not the session's home, `errors.HomeUnreachable` when it could not be asked, and
        `errors.OutcomeUnknown` when it went away before it answered."""
        ...
