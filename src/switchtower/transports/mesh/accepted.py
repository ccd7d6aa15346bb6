"""The side of a connection that came from another node: answers, hears and hosts its tunnels."""

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec import Struct, field

from switchtower.transports.mesh import envelopes, link
from switchtower.transports.mesh.ports import RequestHandler, NotificationHandler, TunnelAcceptor, MeshPeer
from switchtower.transports.mesh.tls import TlsChannel
from switchtower.transports.mesh.tunnel import ABNORMAL

AcceptedLinkCallback = Callable[["Accepted"], None]


class SubjectHandlers(Struct):
    """What a node can be spoken to about."""

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

    def on_frame(self, envelope: envelopes.Envelope) -> None:
        match envelope:
            case envelopes.RequestFrame():
                self._on_request(envelope)
            case envelopes.NotificationFrame():
                self._on_notification(envelope)
            case envelopes.TunnelOpen():
                self._on_tunnel_open(envelope)
            case _:
                raise envelopes.MeshProtocolError("it answers where it should ask")

    def on_lost(self) -> None:
        if self.met:
            link.log.info("the connection from node %s is over: %s", self.peer.node_id, self.problem or "this node closes")
        else:
            link.log.warning("a connection from another node is refused: %s", self.problem or "this node closes")
        self._owed.clear()
        self._on_lost_callback(self)

    def _on_request(self, question: envelopes.RequestFrame) -> None:
        number = question.number
        answerer = self._subjects.answerers.get(question.subject)
        if answerer is None:
            self.send(envelopes.FailureFrame(number, f"the node does not know `{question.subject[:100]}`"))
            return
        # Whoever asks waits for no more than this either, so that more are not of this protocol.
        if number in self._owed or len(self._owed) >= link.MOST_UNANSWERED:
            raise envelopes.MeshProtocolError("it asks more than may be unanswered")
        self._owed.add(number)
        try:
            answerer(self.peer.node_id, question.body, partial(self._reply, number))
        except Exception:
            link.log.exception("cannot answer node %s about `%s`", self.peer.node_id, question.subject)
            if number in self._owed:
                self._owed.discard(number)
                self.send(envelopes.FailureFrame(number, "the node failed to answer"))

    def _reply(self, number: int, body: bytes) -> None:
        if number not in self._owed:
            return  # the connection is over, or it was answered before
        self._owed.discard(number)
        if not self.send(envelopes.ResponseFrame(number, body)):
            link.log.error("node %s cannot be answered: %d bytes are too many", self.peer.node_id, len(body))
            self.send(envelopes.FailureFrame(number, "the answer is too long"))

    def _on_notification(self, words: envelopes.NotificationFrame) -> None:
        hearer = self._subjects.hearers.get(words.subject)
        if hearer is None:
            link.log.debug("node %s tells of something that is not known here", self.peer.node_id)
            return
        try:
            hearer(self.peer.node_id, words.body)
        except Exception:
            link.log.exception("failed at what node %s tells of `%s`", self.peer.node_id, words.subject)

    def _on_tunnel_open(self, opening: envelopes.TunnelOpen) -> None:
        if opening.tunnel in self._tunnels:
            raise envelopes.MeshProtocolError("it opens a tunnel twice")
        host = self._subjects.hosts.get(opening.subject)
        if host is None or len(self._tunnels) >= link.MOST_TUNNELS:
            self.send(envelopes.TunnelEnd(opening.tunnel, ABNORMAL, "the node takes no such tunnel"))
            return
        try:
            receiver = host(self.peer.node_id, opening.opening)
            self.create_tunnel(opening.tunnel).begin(receiver)
        except Exception:
            link.log.exception("cannot host a tunnel of node %s for `%s`", self.peer.node_id, opening.subject)
            if (dug := self._tunnels.get(opening.tunnel)) is not None:
                self.remove_tunnel(dug)
            self.send(envelopes.TunnelEnd(opening.tunnel, ABNORMAL, "the node failed to take the tunnel"))
