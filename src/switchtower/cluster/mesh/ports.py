"""What one node can ask of another, whatever it is about. Bodies are bytes: who asks and who answers agree on what they mean.

Each node dials every other and speaks on the connection that it dialled; on those that it accepted it answers. Whoever is
there holds the key of the tower: nodes trust each other, and nobody else gets in.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from switchtower.transports.stream import Receiver


class MeshPeer(Struct, frozen=True):
    """A node as it tells of itself when it is met."""

    node_id: str
    name: str
    version: str
    host_id: str
    """Who its machine is in relay's words."""


class NodeUnreachable(Exception):
    """The other node is not connected, or went away before it answered."""

    def __init__(self, node_id: str, *, sent: bool) -> None:
        super().__init__(f"node {node_id} cannot be reached")
        self.node_id = node_id
        self.sent = sent
        """Whether it may have heard the question: then nobody knows what came of it."""


class NodeRequestFailed(Exception):
    """The other node is there and has no answer: it does not know the subject, because it is of another version, or failed."""


MeshProblem = NodeUnreachable | NodeRequestFailed
ResponseCallback = Callable[[bytes | MeshProblem], None]
ReplyCallback = Callable[[bytes], None]
RequestHandler = Callable[[str, bytes, ReplyCallback], None]
"""Told which node asks and what. Replies once, now or later."""
NotificationHandler = Callable[[str, bytes], None]
TunnelAcceptor = Callable[[str, bytes], Receiver]
"""Told which node opens a tunnel and with which words; gives who is at this end of it."""


class Mesh(Protocol):
    """All of it on the event loop; nothing here waits but `close`. Callbacks must not raise and not take long."""

    @property
    def local_peer(self) -> MeshPeer: ...

    @property
    def peers(self) -> Mapping[str, MeshPeer]:
        """The other nodes that can be spoken to right now."""
        ...

    def update_nodes(self, nodes: Iterable[tuple[str, str]]) -> None:
        """The nodes that live, by id and address: dials the new ones, and hangs up on those that are not among them: whoever
        waits for their answers is told at once."""
        ...

    def request(self, node_id: str, subject: str, body: bytes, done: ResponseCallback) -> None:
        """A question. Questions of one asker to one node arrive in order. `done` is told once, never before this returns."""
        ...

    def notify(self, node_id: str, subject: str, body: bytes) -> bool:
        """Words without an answer. False: it is not connected."""
        ...

    def open_tunnel(self, node_id: str, subject: str, opening: bytes, receiver: Receiver) -> None:
        """A stream of frames to the other node, with its own flow control. `receiver.connected` is told before this returns;
        when the node goes away it is told `disconnected`. Raises `Unreachable`."""
        ...

    def handle_requests(self, subject: str, answerer: RequestHandler) -> None: ...

    def handle_notifications(self, subject: str, hearer: NotificationHandler) -> None: ...

    def accept_tunnels(self, subject: str, host: TunnelAcceptor) -> None: ...

    def watch(self, came: Callable[[MeshPeer], None], went: Callable[[MeshPeer], None]) -> Callable[[], None]:
        """Told of peers that can be spoken to, at once of those that already can, and of those that no longer can. Returns
        what ends it."""
        ...
