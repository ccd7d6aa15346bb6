"""What every mesh is, however its connections are made: who can be spoken to, who listens here, and who wants to know."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType

from switchtower.transports.mesh.accepted import Accepted, Subjects
from switchtower.transports.mesh.dialled import Dialled
from switchtower.transports.mesh.ports import Answerer, Done, Hearer, Host, Peer, Unreachable
from switchtower.transports.stream import Receiver

_log = logging.getLogger(__name__)

Told = Callable[[Peer], None]


class Switchboard:
    def __init__(self, me: Peer) -> None:
        self._me = me
        self._subjects = Subjects()
        self._lines: dict[str, Dialled] = {}
        """The nodes that can be spoken to."""
        self._peers: dict[str, Peer] = {}
        self._callers: set[Accepted] = set()
        """All that came to us, whether or not they have said who they are."""
        self._watchers: list[tuple[Told, Told]] = []

    @property
    def me(self) -> Peer:
        return self._me

    @property
    def peers(self) -> Mapping[str, Peer]:
        return MappingProxyType(self._peers)

    def ask(self, node_id: str, subject: str, body: bytes, done: Done) -> None:
        line = self._lines.get(node_id)
        if line is None:
            asyncio.get_running_loop().call_soon(done, Unreachable(node_id, sent=False))
        else:
            line.ask(subject, body, done)

    def tell(self, node_id: str, subject: str, body: bytes) -> bool:
        line = self._lines.get(node_id)
        return line is not None and line.tell(subject, body)

    def tunnel(self, node_id: str, subject: str, opening: bytes, receiver: Receiver) -> None:
        line = self._lines.get(node_id)
        if line is None:
            raise Unreachable(node_id, sent=False)
        line.tunnel(subject, opening, receiver)

    def answers(self, subject: str, answerer: Answerer) -> None:
        assert subject not in self._subjects.answerers, "one answers for a subject"
        self._subjects.answerers[subject] = answerer

    def hears(self, subject: str, hearer: Hearer) -> None:
        assert subject not in self._subjects.hearers, "one hears of a subject"
        self._subjects.hearers[subject] = hearer

    def hosts(self, subject: str, host: Host) -> None:
        assert subject not in self._subjects.hosts, "one hosts a subject's tunnels"
        self._subjects.hosts[subject] = host

    def watch(self, came: Told, went: Told) -> Callable[[], None]:
        watcher = (came, went)
        self._watchers.append(watcher)
        for peer in tuple(self._peers.values()):
            _tell(came, peer)

        def stop() -> None:
            self._watchers = [other for other in self._watchers if other is not watcher]

        return stop

    # What the connections tell.

    def _line_came(self, line: Dialled) -> None:
        self._lines[line.node_id] = line
        self._peers[line.node_id] = line.peer
        for came, _went in tuple(self._watchers):
            _tell(came, line.peer)

    def _line_went(self, line: Dialled) -> None:
        if self._lines.get(line.node_id) is line:
            del self._lines[line.node_id], self._peers[line.node_id]
            for _came, went in tuple(self._watchers):
                _tell(went, line.peer)

    def _caller_came(self, caller: Accepted) -> None:
        # A node has one connection to here. What it said on an older one must not arrive after what it says on this.
        for other in tuple(self._callers):
            if other is not caller and other.met and other.peer.node_id == caller.peer.node_id:
                other.hang_up("it came again")

    def _hang_up_on_caller(self, node_id: str) -> None:
        for caller in tuple(self._callers):
            if caller.met and caller.peer.node_id == node_id:
                caller.hang_up("it is no node any more")


def _tell(told: Told, peer: Peer) -> None:
    try:
        told(peer)
    except Exception:
        _log.exception("who watches the nodes failed")
