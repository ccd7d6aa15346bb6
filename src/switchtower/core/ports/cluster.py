"""The cluster ports: the leases that make a node the owner of a session, the list of nodes, and forwarding to an owner. A
daemon without a cluster needs none of this.

A node joins and renews its lease. Its sessions belong to it for as long as it does: their leases last as long as the node's.
When a node is silent, other nodes take its sessions over. Each change of owner raises the session's epoch, and the journal
stores nothing of an older epoch, so a node that was believed dead does no harm when it continues for a while. Stores implement
the leases and judge by one clock, the store's own.

A node is one process from start to end: a process that starts again joins under a new id.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from switchtower.core import commands
from switchtower.core.ports import session_service


class LeasesUnavailable(Exception):
    """The owners of sessions cannot be determined; it has the database's error and a remedy if there is one."""

    def __init__(self, problem: str, *, hint: str | None = None) -> None:
        self.message = f"the homes of sessions cannot be told: {problem}"
        self.hint = hint
        super().__init__(f"{self.message}; hint: {hint}" if hint else self.message)


class Node(Struct, frozen=True):
    node_id: str
    address: str
    """The address at which other nodes reach it."""
    joined_at_ms: int
    expires_at_ms: int
    is_alive: bool
    """As of the query, by the store's clock."""
    sessions: int
    """The number of sessions that it owns."""
    name: str = ""
    """The name that operators gave it."""
    version: str = ""
    draining: bool = False
    """It releases its sessions and acquires no others."""


class Lease(Struct, frozen=True):
    session_id: str
    node_id: str
    epoch: int
    """The epoch that the session's appends carry while this lease lasts."""
    expires_at_ms: int
    """The expiry of its node's lease, as of the query."""


class Renewal(StrEnum):
    KEPT = "kept"
    """The renewal was in time: the node still owns everything that it owned."""
    LATE = "late"
    """The node counts as alive again, but other nodes may have taken some of its sessions meanwhile: it must list what it
    owns.
    """
    UNKNOWN = "unknown"
    """The node never joined, left, or was forgotten: it owns nothing."""


class Leases(Protocol):
    """All methods are safe to call from the event loop, and each is one transaction.

    Any of them raises `LeasesUnavailable` when the database fails. Retrying is safe: a node that owns a session already gets
    the lease that it has.
    """

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    # Nodes

    async def join(self, node_id: str, address: str, lasts_ms: int, *, name: str = "", version: str = "") -> None:
        """Adds a node, or changes the address of one that joined."""
        ...

    async def begin_drain(self, node_id: str) -> None:
        """The node can no longer acquire or be given anything; it keeps what it has for now."""
        ...

    async def drain(self, node_id: str) -> int:
        """Frees everything that the node owns; returns the number of sessions. From now on the node cannot acquire or be given
        anything. Its row stays, and it counts as alive while it renews.
        """
        ...

    async def renew(self, node_id: str, lasts_ms: int) -> Renewal:
        """Renews the leases of all of the node's sessions at once."""
        ...

    async def inherit(self, from_node_id: str, node_id: str) -> int:
        """Gives everything of a machine's previous node to its new one, in new epochs, and removes the previous one. Returns
        the number of sessions; 0 when the new node is not alive.
        """
        ...

    async def leave(self, node_id: str) -> int:
        """Removes the node and frees everything that it owns; returns the number of sessions."""
        ...

    async def list_nodes(self, *, counted: bool = True) -> list[Node]:
        """Lists the nodes by id, also silent ones that were not forgotten yet. Without `counted`, the numbers of their
        sessions are left out: their cost grows with the number of sessions.
        """
        ...

    async def forget_nodes(self, silent_for_ms: int) -> int:
        """Removes the nodes that have been silent for this long and own nothing any more; returns their number."""
        ...

    # Sessions

    async def acquire(self, session_id: str, node_id: str) -> Lease | None:
        """Makes this node the session's owner, in a new epoch if the session was free or its node is silent. None: another
        node owns it, or this node is not alive. A session that does not exist yet can be acquired in order to start it.
        """
        ...

    async def acquire_all(self, session_ids: Sequence[str], node_id: str, *, begin: bool = True) -> list[Lease]:
        """Like `acquire`, for many sessions at once; returns the leases that were acquired. Without `begin`, only sessions
        that exist are acquired.
        """
        ...

    async def hand_over(self, lease: Lease, to_node_id: str) -> Lease | None:
        """Gives a session to another node, in a new epoch. None: the lease is no longer valid, or the other node is not alive."""
        ...

    async def release(self, lease: Lease) -> bool:
        """Frees the session; appends that its node has not stored yet are refused. False: the lease was no longer valid."""
        ...

    async def take_over(self, node_id: str, limit: int) -> list[Lease]:
        """Acquires up to `limit` sessions in which something is active (by their cards: an active state, or users' own
        commands) and that have no owner, or a silent one, each in a new epoch. Nodes that call it at once get different ones.
        Sessions of another host are left out: they continue there, and a node acquires one when a client needs it.
        """
        ...

    async def release_silent(self, limit: int) -> int:
        """Frees up to `limit` other sessions of silent nodes; returns their number. A node acquires one when a client needs
        it.
        """
        ...

    async def find_owner(self, session_id: str) -> Lease | None:
        """Returns the session's lease, also that of a silent node. None: the session is free."""
        ...

    async def find_owners(self, session_ids: Sequence[str]) -> list[Lease]:
        """Like `find_owner`, for many sessions at once; returns the leases of those that are not free."""
        ...

    async def list_owned(self, node_id: str, *, limit: int, after: str = "") -> list[Lease]:
        """Lists the node's sessions by id, starting after the given one."""
        ...


class DrainResult(Struct, frozen=True):
    """The result of draining a node."""

    sessions: int
    """Sessions that the node has released."""
    interrupted: int
    """Runs that were interrupted, because they did not end in time."""


class ClusterNodes(Protocol):
    @property
    def node_id(self) -> str: ...

    async def list_nodes(self) -> list[Node]:
        """Raises `LeasesUnavailable`."""
        ...

    async def drain(self, wait_s: float) -> DrainResult:
        """Accepts nothing new, waits this long for runs to end, gives the sessions to other nodes and disconnects the clients.
        The node stays, empty, until it is stopped. A second call returns the result of the first.
        """
        ...


class OwnedHere(Struct, frozen=True):
    """This node owns the session. Its appends carry the epoch."""

    epoch: int


class OwnedBy(Struct, frozen=True):
    """Another node owns the session."""

    node_id: str


class Unowned(Struct, frozen=True):
    """No node owns the session, and this one could not acquire it: most likely the session does not exist."""


class SessionOwnership(Protocol):
    async def claim(self, session_id: str, *, begins: bool = False) -> OwnedHere | OwnedBy | Unowned:
        """Makes this node the session's owner, unless another node is. `begins`: also a session that does not exist yet can be
        acquired; without it, a made-up id leaves nothing behind.

        Raises `errors.OwnerUnreachable` when neither is possible: this node acquires nothing any more.
        """
        ...

    def can_reach(self, node_id: str) -> bool:
        """Returns whether that node can be called right now."""
        ...

    def forward(self, node_id: str, command: commands.AnyCommand, done: session_service.OutcomeCallback) -> None:
        """Forwards a command to another node, in the order of the calls; `done` is never called before this returns. `done`
        gets `errors.Fenced` when that node does not own the session, `errors.OwnerUnreachable` when it could not be called,
        and `errors.OutcomeUnknown` when it disconnected before it responded.
        """
        ...
