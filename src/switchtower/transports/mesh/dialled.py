"""The side of a connection that was dialled from here: asks, tells and opens tunnels."""

from collections.abc import Callable

from switchtower.transports.mesh import envelopes, link
from switchtower.transports.mesh.ports import Done, Peer, Problem, Unanswerable, Unreachable
from switchtower.transports.mesh.tls import Tls
from switchtower.transports.stream import Receiver

Told = Callable[["Dialled"], None]


class Dialled(link.Link):
    def __init__(self, me: Peer, limits: link.Limits, tls: Tls | None, node_id: str, *, came: Told, went: Told) -> None:
        super().__init__(me, limits, tls)
        self.node_id = node_id
        self._came = came
        self._went = went
        self._number = 0
        self._written = 0
        """The last question that may have been heard."""
        self._unanswered: dict[int, Done] = {}

    def ask(self, subject: str, body: bytes, done: Done) -> None:
        if self.over or len(self._unanswered) >= self.limits.unanswered:
            self._later(done, Unreachable(self.node_id, sent=False))
            return
        self._number += 1
        if self.send(envelopes.Ask(self._number, subject, body)):
            self._unanswered[self._number] = done
        else:
            self._later(done, Unanswerable("the question is too long"))

    def tell(self, subject: str, body: bytes) -> bool:
        if self.over:
            return False
        if not self.send(envelopes.Tell(subject, body)):
            link.log.error("node %s is not told of `%s`: %d bytes are too many", self.node_id, subject, len(body))
        return True

    def tunnel(self, subject: str, opening: bytes, receiver: Receiver) -> None:
        self._number += 1
        too_many = self.over or len(self._tunnels) >= link.MOST_TUNNELS
        if too_many or not self.send(envelopes.Open(self._number, subject, opening)):
            raise Unreachable(self.node_id, sent=False)
        tunnel = self.dig(self._number)
        try:
            tunnel.begin(receiver)
        except BaseException:
            self.forget(tunnel)
            self.send(envelopes.End(tunnel.number, None, ""))
            raise

    def greeted(self, peer: Peer) -> None:
        if peer.node_id != self.node_id:
            self.met = False
            raise envelopes.Unreadable(f"at that address there is node {peer.node_id} now")
        self._came(self)

    def handle(self, envelope: envelopes.Envelope) -> None:
        match envelope:
            case envelopes.Answer():
                self._answered(envelope.number, envelope.body)
            case envelopes.NoAnswer():
                self._answered(envelope.number, Unanswerable(envelope.reason))
            case _:
                raise envelopes.Unreadable("it asks where it should answer")

    def wrote(self) -> None:
        self._written = self._number

    def lost(self) -> None:
        if self.met:
            self._went(self)
        unanswered, self._unanswered = self._unanswered, {}
        for number, done in unanswered.items():
            _tell(done, Unreachable(self.node_id, sent=number <= self._written))

    def _answered(self, number: int, answer: bytes | Problem) -> None:
        done = self._unanswered.pop(number, None)
        if done is None:
            raise envelopes.Unreadable("it answers what was not asked")
        _tell(done, answer)

    def _later(self, done: Done, problem: Problem) -> None:
        self._loop.call_soon(_tell, done, problem)


def _tell(done: Done, answer: bytes | Problem) -> None:
    try:
        done(answer)
    except Exception:
        link.log.exception("who asked another node failed at the answer")
