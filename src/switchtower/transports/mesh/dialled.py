"""The side of a connection that was dialled from here: asks, tells and opens tunnels."""

from collections.abc import Callable

from switchtower.transports.mesh import envelopes, link
from switchtower.transports.mesh.ports import ResponseCallback, MeshPeer, MeshProblem, NodeRequestFailed, NodeUnreachable
from switchtower.transports.mesh.tls import TlsChannel
from switchtower.transports.stream import Receiver

DialledLinkCallback = Callable[["Dialled"], None]


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
        """The last question that may have been heard."""
        self._unanswered: dict[int, ResponseCallback] = {}

    def request(self, subject: str, body: bytes, done: ResponseCallback) -> None:
        if self.is_closed or len(self._unanswered) >= self.limits.unanswered:
            self._call_later(done, NodeUnreachable(self.node_id, sent=False))
            return
        self._number += 1
        if self.send(envelopes.RequestFrame(self._number, subject, body)):
            self._unanswered[self._number] = done
        else:
            self._call_later(done, NodeRequestFailed("the question is too long"))

    def notify(self, subject: str, body: bytes) -> bool:
        if self.is_closed:
            return False
        if not self.send(envelopes.NotificationFrame(subject, body)):
            link.log.error("node %s is not told of `%s`: %d bytes are too many", self.node_id, subject, len(body))
        return True

    def open_tunnel(self, subject: str, opening: bytes, receiver: Receiver) -> None:
        self._number += 1
        too_many = self.is_closed or len(self._tunnels) >= link.MOST_TUNNELS
        if too_many or not self.send(envelopes.TunnelOpen(self._number, subject, opening)):
            raise NodeUnreachable(self.node_id, sent=False)
        tunnel = self.create_tunnel(self._number)
        try:
            tunnel.begin(receiver)
        except BaseException:
            self.remove_tunnel(tunnel)
            self.send(envelopes.TunnelEnd(tunnel.number, None, ""))
            raise

    def on_hello(self, peer: MeshPeer) -> None:
        if peer.node_id != self.node_id:
            self.met = False
            raise envelopes.MeshProtocolError(f"at that address there is node {peer.node_id} now")
        self._on_open_callback(self)

    def on_frame(self, envelope: envelopes.Envelope) -> None:
        match envelope:
            case envelopes.ResponseFrame():
                self._on_response(envelope.number, envelope.body)
            case envelopes.FailureFrame():
                self._on_response(envelope.number, NodeRequestFailed(envelope.reason))
            case _:
                raise envelopes.MeshProtocolError("it asks where it should answer")

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
            raise envelopes.MeshProtocolError("it answers what was not asked")
        _call_done(done, answer)

    def _call_later(self, done: ResponseCallback, problem: MeshProblem) -> None:
        self._loop.call_soon(_call_done, done, problem)


def _call_done(done: ResponseCallback, answer: bytes | MeshProblem) -> None:
    try:
        done(answer)
    except Exception:
        link.log.exception("who asked another node failed at the answer")
