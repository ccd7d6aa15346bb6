"""What every mesh is, however its connections are made: who can be spoken to, who listens here, and who wants to know."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType

from switchtower.transports.mesh.accepted import AcceptedLink, SubjectHandlers
from switchtower.transports.mesh.dialled import DialledLink
from switchtower.transports.mesh.ports import (
    RequestHandler,
    ResponseCallback,
    NotificationHandler,
    TunnelAcceptor,
    MeshPeer,
    NodeUnreachable,
)
from switchtower.transports.stream import Receiver

_log = logging.getLogger(__name__)

PeerCallback = Callable[[MeshPeer], None]


class MeshBase:
    def __init__(self, me: MeshPeer) -> None:
        self._local_peer = me
        self._subjects = SubjectHandlers()
        self._dialled_links: dict[str, DialledLink] = {}
        """The nodes that can be spoken to."""
        self._peers: dict[str, MeshPeer] = {}
        self._callers: set[AcceptedLink] = set()
        """All that came to us, whether or not they have said who they are."""
        self._watchers: list[tuple[PeerCallback, PeerCallback]] = []

    @property
    def local_peer(self) -> MeshPeer:
        return self._local_peer

    @property
    def peers(self) -> Mapping[str, MeshPeer]:
        return MappingProxyType(self._peers)

    def request(self, node_id: str, subject: str, body: bytes, done: ResponseCallback) -> None:
        line = self._dialled_links.get(node_id)
        if line is None:
            asyncio.get_running_loop().call_soon(done, NodeUnreachable(node_id, sent=False))
        else:
            line.request(subject, body, done)

    def notify(self, node_id: str, subject: str, body: bytes) -> bool:
        line = self._dialled_links.get(node_id)
        return line is not None and line.notify(subject, body)

    def open_tunnel(self, node_id: str, subject: str, opening: bytes, receiver: Receiver) -> None:
        line = self._dialled_links.get(node_id)
        if line is None:
            raise NodeUnreachable(node_id, sent=False)
        line.open_tunnel(subject, opening, receiver)

    def handle_requests(self, subject: str, answerer: RequestHandler) -> None:
        assert subject not in self._subjects.answerers, "one answers for a subject"
        self._subjects.answerers[subject] = answerer

    def handle_notifications(self, subject: str, hearer: NotificationHandler) -> None:
        assert subject not in self._subjects.hearers, "one hears of a subject"
        self._subjects.hearers[subject] = hearer

    def accept_tunnels(self, subject: str, host: TunnelAcceptor) -> None:
        assert subject not in self._subjects.hosts, "one hosts a subject's tunnels"
        self._subjects.hosts[subject] = host

    def watch(self, came: PeerCallback, went: PeerCallback) -> Callable[[], None]:
        watcher = (came, went)
        self._watchers.append(watcher)
        for peer in tuple(self._peers.values()):
            _notify_watcher(came, peer)

        def stop() -> None:
            self._watchers = [other for other in self._watchers if other is not watcher]

        return stop

    # What the connections tell.

    def _on_link_open(self, line: DialledLink) -> None:
        self._dialled_links[line.node_id] = line
        self._peers[line.node_id] = line.peer
        for came, _went in tuple(self._watchers):
            _notify_watcher(came, line.peer)

    def _on_link_lost(self, line: DialledLink) -> None:
        if self._dialled_links.get(line.node_id) is line:
            del self._dialled_links[line.node_id], self._peers[line.node_id]
            for _came, went in tuple(self._watchers):
                _notify_watcher(went, line.peer)

    def _on_caller_open(self, caller: AcceptedLink) -> None:
        # A node has one connection to here. What it said on an older one must not arrive after what it says on this.
        for other in tuple(self._callers):
            if other is not caller and other.met and other.peer.node_id == caller.peer.node_id:
                other.close("it came again")

    def _close_caller(self, node_id: str) -> None:
        for caller in tuple(self._callers):
            if caller.met and caller.peer.node_id == node_id:
                caller.close("it is no node any more")


def _notify_watcher(callback: PeerCallback, peer: MeshPeer) -> None:
    try:
        callback(peer)
    except Exception:
        _log.exception("who watches the nodes failed")
