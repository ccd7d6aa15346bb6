"""The two roles of a mesh connection: an accepted link answers requests, takes notifications and accepts tunnels; a dialled
link sends requests and notifications and opens tunnels.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec import Struct, field

from switchtower.cluster.mesh import frames, link
from switchtower.cluster.mesh.ports import (
    MeshPeer,
    MeshProblem,
    NodeRequestFailed,
    NodeUnreachable,
    NotificationHandler,
    RequestHandler,
    ResponseCallback,
    TunnelAcceptor,
)
from switchtower.cluster.mesh.tls import TlsChannel
from switchtower.cluster.mesh.tunnel import ABNORMAL
from switchtower.transports.stream import Receiver

AcceptedLinkCallback = Callable[["AcceptedLink"], None]


class SubjectHandlers(Struct):
    """The handlers of a node, by subject."""

    answerers: dict[str, RequestHandler] = field(default_factory=dict)
    hearers: dict[str, NotificationHandler] = field(default_factory=dict)
    hosts: dict[str, TunnelAcceptor] = field(default_factory=dict)


class AcceptedLink(link.MeshLink):
    def __init__(
        self,
        me: MeshPeer,
        limits: link.LinkLimits,
        tls: TlsChannel | None,
        subjects: SubjectHandlers,
        *,
        made: AcceptedLinkCallback,
        came: AcceptedLinkCallback,
        went: AcceptedLinkCallback,
    ) -> None:
        super().__init__(me, limits, tls)
        self._subjects = subjects
        self._on_connected_callback = made
        self._on_open_callback = came
        self._on_lost_callback = went
        self._owed: set[int] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._on_connected_callback(self)
        super().connection_made(transport)

    def on_hello(self, peer: MeshPeer) -> None:
        self._on_open_callback(self)

    def on_frame(self, envelope: frames.Envelope) -> None:
        match envelope:
            case frames.RequestFrame():
                self._on_request(envelope)
            case frames.NotificationFrame():
                self._on_notification(envelope)
            case frames.TunnelOpen():
                self._on_tunnel_open(envelope)
            case _:
                raise frames.MeshProtocolError("it answers where it should ask")

    def on_lost(self) -> None:
        if self.met:
            link.log.info("the connection from node %s is over: %s", self.peer.node_id, self.problem or "this node closes")
        else:
            link.log.warning("a connection from another node is refused: %s", self.problem or "this node closes")
        self._owed.clear()
        self._on_lost_callback(self)

    def _on_request(self, question: frames.RequestFrame) -> None:
        number = question.number
        answerer = self._subjects.answerers.get(question.subject)
        if answerer is None:
            self.send(frames.FailureFrame(number, f"the node does not know `{question.subject[:100]}`"))
            return
        # A node that keeps to this protocol has no more requests waiting for a response than this.
        if number in self._owed or len(self._owed) >= link.MOST_UNANSWERED:
            raise frames.MeshProtocolError("it asks more than may be unanswered")
        self._owed.add(number)
        try:
            answerer(self.peer.node_id, question.body, partial(self._reply, number))
        except Exception:
            link.log.exception("cannot answer node %s about `%s`", self.peer.node_id, question.subject)
            if number in self._owed:
                self._owed.discard(number)
                self.send(frames.FailureFrame(number, "the node failed to answer"))

    def _reply(self, number: int, body: bytes) -> None:
        if number not in self._owed:
            return  # the connection has ended, or the request was answered before
        self._owed.discard(number)
        if not self.send(frames.ResponseFrame(number, body)):
            link.log.error("node %s cannot be answered: %d bytes are too many", self.peer.node_id, len(body))
            self.send(frames.FailureFrame(number, "the answer is too long"))

    def _on_notification(self, words: frames.NotificationFrame) -> None:
        hearer = self._subjects.hearers.get(words.subject)
        if hearer is None:
            link.log.debug("node %s tells of something that is not known here", self.peer.node_id)
            return
        try:
            hearer(self.peer.node_id, words.body)
        except Exception:
            link.log.exception("failed at what node %s tells of `%s`", self.peer.node_id, words.subject)

    def _on_tunnel_open(self, opening: frames.TunnelOpen) -> None:
        if opening.tunnel in self._tunnels:
            raise frames.MeshProtocolError("it opens a tunnel twice")
        host = self._subjects.hosts.get(opening.subject)
        if host is None or len(self._tunnels) >= link.MOST_TUNNELS:
            self.send(frames.TunnelEnd(opening.tunnel, ABNORMAL, "the node takes no such tunnel"))
            return
        try:
            receiver = host(self.peer.node_id, opening.opening)
            self.create_tunnel(opening.tunnel).begin(receiver)
        except Exception:
            link.log.exception("cannot host a tunnel of node %s for `%s`", self.peer.node_id, opening.subject)
            if (dug := self._tunnels.get(opening.tunnel)) is not None:
                self.remove_tunnel(dug)
            self.send(frames.TunnelEnd(opening.tunnel, ABNORMAL, "the node failed to take the tunnel"))


DialledLinkCallback = Callable[["DialledLink"], None]


class DialledLink(link.MeshLink):
    def __init__(
        self,
        me: MeshPeer,
        limits: link.LinkLimits,
        tls: TlsChannel | None,
        node_id: str,
        *,
        came: DialledLinkCallback,
        went: DialledLinkCallback,
    ) -> None:
        super().__init__(me, limits, tls)
        self.node_id = node_id
        self._on_open_callback = came
        self._on_lost_callback = went
        self._number = 0
        self._written = 0
        """The number of the last request that the other node may have received."""
        self._unanswered: dict[int, ResponseCallback] = {}

    def request(self, subject: str, body: bytes, done: ResponseCallback) -> None:
        if self.is_closed or len(self._unanswered) >= self.limits.unanswered:
            self._call_later(done, NodeUnreachable(self.node_id, sent=False))
            return
        self._number += 1
        if self.send(frames.RequestFrame(self._number, subject, body)):
            self._unanswered[self._number] = done
        else:
            self._call_later(done, NodeRequestFailed("the question is too long"))

    def notify(self, subject: str, body: bytes) -> bool:
        if self.is_closed:
            return False
        if not self.send(frames.NotificationFrame(subject, body)):
            link.log.error("node %s is not told of `%s`: %d bytes are too many", self.node_id, subject, len(body))
        return True

    def open_tunnel(self, subject: str, opening: bytes, receiver: Receiver) -> None:
        self._number += 1
        too_many = self.is_closed or len(self._tunnels) >= link.MOST_TUNNELS
        if too_many or not self.send(frames.TunnelOpen(self._number, subject, opening)):
            raise NodeUnreachable(self.node_id, sent=False)
        tunnel = self.create_tunnel(self._number)
        try:
            tunnel.begin(receiver)
        except BaseException:
            self.remove_tunnel(tunnel)
            self.send(frames.TunnelEnd(tunnel.number, None, ""))
            raise

    def on_hello(self, peer: MeshPeer) -> None:
        if peer.node_id != self.node_id:
            self.met = False
            raise frames.MeshProtocolError(f"at that address there is node {peer.node_id} now")
        self._on_open_callback(self)

    def on_frame(self, envelope: frames.Envelope) -> None:
        match envelope:
            case frames.ResponseFrame():
                self._on_response(envelope.number, envelope.body)
            case frames.FailureFrame():
                self._on_response(envelope.number, NodeRequestFailed(envelope.reason))
            case _:
                raise frames.MeshProtocolError("it asks where it should answer")

    def on_written(self) -> None:
        self._written = self._number

    def on_lost(self) -> None:
        if self.met:
            self._on_lost_callback(self)
        unanswered, self._unanswered = self._unanswered, {}
        for number, done in unanswered.items():
            _call_done(done, NodeUnreachable(self.node_id, sent=number <= self._written))

    def _on_response(self, number: int, answer: bytes | MeshProblem) -> None:
        done = self._unanswered.pop(number, None)
        if done is None:
            raise frames.MeshProtocolError("it answers what was not asked")
        _call_done(done, answer)

    def _call_later(self, done: ResponseCallback, problem: MeshProblem) -> None:
        self._loop.call_soon(_call_done, done, problem)


def _call_done(done: ResponseCallback, answer: bytes | MeshProblem) -> None:
    try:
        done(answer)
    except Exception:
        link.log.exception("who asked another node failed at the answer")
