"""The mesh port: requests, notifications and tunnels between nodes. Bodies are bytes: the two sides of a subject agree on
their meaning.

Each node dials every other and sends requests on the connection that it dialled; on those that it accepted it responds. Every
peer has the cluster's key: nodes trust each other, and no other process gets in.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from switchtower.transports.stream import Receiver


class MeshPeer(Struct, frozen=True):
    """A node's description of itself, sent when it connects."""

    node_id: str
    name: str
    version: str
    host_id: str
    """The id of its machine as a relay host."""


class NodeUnreachable(Exception):
    """The other node is not connected, or disconnected before it responded."""

    def __init__(self, node_id: str, *, sent: bool) -> None:
        super().__init__(f"node {node_id} cannot be reached")
        self.node_id = node_id
        self.sent = sent
        """True when the node may have received the request: then its effect is unknown."""


class NodeRequestFailed(Exception):
    """The other node is connected and has no answer: it does not know the subject, because it has another version, or it
    failed.
    """


MeshProblem = NodeUnreachable | NodeRequestFailed
ResponseCallback = Callable[[bytes | MeshProblem], None]
ReplyCallback = Callable[[bytes], None]
RequestHandler = Callable[[str, bytes, ReplyCallback], None]
"""Gets the requesting node and the body. Replies once, now or later."""
NotificationHandler = Callable[[str, bytes], None]
TunnelAcceptor = Callable[[str, bytes], Receiver]
"""Gets the node that opens a tunnel and its opening body; returns the receiver at this end."""


class Mesh(Protocol):
    """All methods run on the event loop; only `close` waits. Callbacks must not raise and not take long."""

    @property
    def local_peer(self) -> MeshPeer: ...

    @property
    def peers(self) -> Mapping[str, MeshPeer]:
        """The other nodes that can be called right now."""
        ...

    def update_nodes(self, nodes: Iterable[tuple[str, str]]) -> None:
        """Sets the live nodes, by id and address: dials the new ones, and closes the connections to those that are not
        included; callers that wait for their responses are notified at once.
        """
        ...

    def request(self, node_id: str, subject: str, body: bytes, done: ResponseCallback) -> None:
        """Sends a request. Requests of one caller to one node arrive in order. `done` is called once, never before this
        returns.
        """
        ...

    def notify(self, node_id: str, subject: str, body: bytes) -> bool:
        """Sends a message without a response. False: the node is not connected."""
        ...

    def open_tunnel(self, node_id: str, subject: str, opening: bytes, receiver: Receiver) -> None:
        """Opens a stream of frames to the other node, with its own flow control. `receiver.on_connected` is called before this
        returns, and `on_disconnected` when the node disconnects. Raises `NodeUnreachable`.
        """
        ...

    def handle_requests(self, subject: str, answerer: RequestHandler) -> None: ...

    def handle_notifications(self, subject: str, hearer: NotificationHandler) -> None: ...

    def accept_tunnels(self, subject: str, host: TunnelAcceptor) -> None: ...

    def watch(self, came: Callable[[MeshPeer], None], went: Callable[[MeshPeer], None]) -> Callable[[], None]:
        """Calls `came` for each peer that can be called, at once for those that already can, and `went` for those that no
        longer can. Returns a function that stops it.
        """
        ...
