"""Wire types of our requests about all sessions (list, search, fork, delete), about the nodes that share one store (list, drain)
and about the folders that the owner trusts.

They are our additions, spelled like the document's own, and import nothing of the core.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

from switchtower.protocols.push.messages import ApprovalRequired, AttachToken, SessionId, SessionState

Limit = Annotated[int, Meta(ge=1, le=500)]


# Requests


class ListCards(Struct, frozen=True):
    """More of each session than `list_sessions` tells. `waiting`: only those that wait for a decision."""

    limit: Limit = 100
    waiting: bool = False


class ListApprovals(Struct, frozen=True):
    """Everything that waits for a decision, of all sessions and hosts, the oldest first."""

    limit: Limit = 100


class SearchSessions(Struct, frozen=True):
    """All words must be there; the last may be a beginning, and words in double quotes stand together."""

    text: Annotated[str, Meta(min_length=1, max_length=1_000)]
    limit: Limit = 50
    sessionId: SessionId | None = None
    """Only in this one."""


class ForkSession(Struct, frozen=True):
    """A new session that begins with what was said in this one: up to a message of a person, or all of it."""

    sessionId: SessionId | None = None
    beforeSeq: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None


class DeleteSession(Struct, frozen=True):
    """For good. Refused while something runs in it."""

    sessionId: SessionId | None = None


ListingRequest = ListCards | ListApprovals | SearchSessions | ForkSession | DeleteSession

LISTING_REQUESTS: dict[str, type[ListingRequest]] = {
    "list_cards": ListCards,
    "list_approvals": ListApprovals,
    "search_sessions": SearchSessions,
    "fork_session": ForkSession,
    "delete_session": DeleteSession,
}
LISTING_NEEDS_SESSION = frozenset({"fork_session", "delete_session"})
LISTING_CAPABILITIES = ["cards", "inbox", "search", "fork", "delete"]


# Answers


class Waiting(Struct, frozen=True, forbid_unknown_fields=True):
    """What a session waits for, in short."""

    approvalId: str
    title: str
    tool: str
    summary: str


class Card(Struct, frozen=True, forbid_unknown_fields=True):
    sessionId: str
    state: SessionState
    title: str
    engine: str
    provider: str
    model: str | None
    mode: str
    rootPath: str
    branch: str | None
    createdAt: int
    updatedAt: int
    endedAt: int | None
    activeRunId: str | None
    messages: int
    tool: str | None
    """The program in its terminal, when it is one."""
    waitsFor: str | None
    """What that program waits for."""
    exitCode: int | None
    host: str | None
    """Where it lives, when that is not here."""
    hostLost: bool
    waiting: Waiting | None
    home: str | None = None
    """The node that decides for it, by its id in `list_nodes`. None where the daemon is alone, or nobody has it at the moment."""
    sandbox: str = ""
    childOf: str | None = None
    """The session whose run has started this one."""


class Cards(Struct, frozen=True, forbid_unknown_fields=True):
    cards: list[Card]


class PendingApproval(Struct, frozen=True, forbid_unknown_fields=True):
    sessionId: str
    runId: str
    sessionTitle: str
    rootPath: str
    host: str | None
    approval: ApprovalRequired
    home: str | None = None
    """As a card has it."""


class Approvals(Struct, frozen=True, forbid_unknown_fields=True):
    approvals: list[PendingApproval]


class Hit(Struct, frozen=True, forbid_unknown_fields=True):
    sessionId: str
    seq: int
    ts: int
    kind: str
    snippet: str
    title: str
    """The session's."""


class Hits(Struct, frozen=True, forbid_unknown_fields=True):
    hits: list[Hit]


class Forked(Struct, frozen=True, forbid_unknown_fields=True):
    sessionId: str
    attachToken: AttachToken
    text: str | None
    """Of the message that it was forked before, to be said in other words."""


class Deleted(Struct, frozen=True, forbid_unknown_fields=True):
    accepted: bool


LISTING_ANSWERS: dict[str, type[Any]] = {
    "list_cards": Cards,
    "list_approvals": Approvals,
    "search_sessions": Hits,
    "fork_session": Forked,
    "delete_session": Deleted,
}


MAX_WAIT_SECONDS = 86_400
"""Seconds."""


# Requests


class ListNodes(Struct, frozen=True):
    pass


class DrainNode(Struct, frozen=True):
    """Empties the node that is asked: it takes up nothing new, gives its runs so long to end, hands its sessions over and lets
    clients go. Asked again it says what came of it the first time, so whoever lost the connection asks again."""

    waitSeconds: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)] = 30.0


NodeRequest = ListNodes | DrainNode

NODE_REQUESTS: dict[str, type[NodeRequest]] = {"list_nodes": ListNodes, "drain_node": DrainNode}
NODE_CAPABILITIES = ["nodes"]


# Answers


class Node(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    """Of one start: a node that is started again is another."""
    name: str
    address: str
    """Where other nodes reach it."""
    version: str
    alive: bool
    draining: bool
    sessions: int
    """How many have it as their home."""
    joinedAt: int
    isThis: bool
    """The one that was asked."""


class Nodes(Struct, frozen=True, forbid_unknown_fields=True):
    """None where the daemon is alone."""

    nodes: list[Node]


class NodeDrained(Struct, frozen=True, forbid_unknown_fields=True):
    sessions: int
    """Handed over."""
    interrupted: int
    """Runs that did not end in time."""


NODE_ANSWERS: dict[str, type[Any]] = {"list_nodes": Nodes, "drain_node": NodeDrained}


FolderPath = Annotated[str, Meta(min_length=1, max_length=4_096)]


# Requests


class ListTrustedFolders(Struct, frozen=True):
    pass


class TrustFolder(Struct, frozen=True):
    """From now on the folder's instructions count, and those of the folders below it."""

    path: FolderPath


class ForgetFolder(Struct, frozen=True):
    path: FolderPath


TrustRequest = ListTrustedFolders | TrustFolder | ForgetFolder

TRUST_REQUESTS: dict[str, type[TrustRequest]] = {
    "list_trusted_folders": ListTrustedFolders,
    "trust_folder": TrustFolder,
    "forget_folder": ForgetFolder,
}
TRUST_CAPABILITIES = ["folder_trust"]


# Answers


class TrustedFolder(Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    since: int
    by: str


class TrustedFolders(Struct, frozen=True, forbid_unknown_fields=True):
    folders: list[TrustedFolder]


class FolderTrusted(Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    """Links followed."""


class FolderForgotten(Struct, frozen=True, forbid_unknown_fields=True):
    wasTrusted: bool


TRUST_ANSWERS: dict[str, type[Any]] = {
    "list_trusted_folders": TrustedFolders,
    "trust_folder": FolderTrusted,
    "forget_folder": FolderForgotten,
}
