"""What one node can ask of another, whatever it is about. Bodies are bytes: who asks and who answers agree on what they mean.

Each node dials every other and speaks on the connection that it dialled; on those that it accepted it answers. Whoever is
there holds the key of the tower: nodes trust each other, and nobody else gets in.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from switchtower.transports.stream import Receiver


class Peer(Struct, frozen=True):
    """A node as it tells of itself when it is met."""

    node_id: str
    name: str
    version: str
    host_id: str
    """Who its machine is in relay's words."""


class Unreachable(Exception):
    """The other node is not connected, or went away before it answered."""

    def __init__(self, node_id: str, *, sent: bool) -> None:
        super().__init__(f"node {node_id} cannot be reached")
        self.node_id = node_id
        self.sent = sent
        """Whether it may have heard the question: then nobody knows what came of it."""


class Unanswerable(Exception):
    """The other node is there and has no answer: it does not know the subject, because it is of another version, or failed."""


Problem = Unreachable | Unanswerable
Done = Callable[[bytes | Problem], None]
Reply = Callable[[bytes], None]
Answerer = Callable[[str, bytes, Reply], None]
"""Told which node asks and what. Replies once, now or later."""
Hearer = Callable[[str, bytes], None]
Host = Callable[[str, bytes], Receiver]
"""Told which node opens a tunnel and with which words; gives who is at this end of it."""


class Mesh(Protocol):
    """All of it on the event loop; nothing here waits but `close`. Callbacks must not raise and not take long."""

    @property
    def me(self) -> Peer: ...

    @property
    def peers(self) -> Mapping[str, Peer]:
        """The other nodes that can be spoken to right now."""
        ...

    def meet(self, nodes: Iterable[tuple[str, str]]) -> None:
        """The nodes that live, by id and address: dials the new ones, and hangs up on those that are not among them: whoever
        waits for their answers is told at once."""
        ...

    def ask(self, node_id: str, subject: str, body: bytes, done: Done) -> None:
        """A question. Questions of one asker to one node arrive in order. `done` is told once, never before this returns."""
        ...

    def tell(self, node_id: str, subject: str, body: bytes) -> bool:
        """Words without an answer. False: it is not connected."""
        ...

    def tunnel(self, node_id: str, subject: str, opening: bytes, receiver: Receiver) -> None:
        """A stream of frames to the other node, with its own flow control. `receiver.connected` is told before this returns;
        when the node goes away it is told `disconnected`. Raises `Unreachable`."""
        ...

    def answers(self, subject: str, answerer: Answerer) -> None: ...

    def hears(self, subject: str, hearer: Hearer) -> None: ...

    def hosts(self, subject: str, host: Host) -> None: ...

    def watch(self, came: Callable[[Peer], None], went: Callable[[Peer], None]) -> Callable[[], None]:
        """Told of peers that can be spoken to, at once of those that already can, and of those that no longer can. Returns
        what ends it."""
        ...
