"""The homes of sessions, as one node knows them: leases say where they are, the mesh asks there."""

from collections.abc import Callable
from functools import partial

from switchtower.core import commands, errors, homes, leases, tower
from switchtower.runtime.homes import wire
from switchtower.transports.mesh import ports

SUBJECT = "command"
TAKES_NOTHING = "this node takes nothing up any more"

Take = Callable[[commands.AnyCommand, tower.Done], None]


class NodeHomes:
    """Implements `homes.Homes`."""

    def __init__(self, leases_: leases.Leases, mesh: ports.Mesh) -> None:
        self._leases = leases_
        self._mesh = mesh
        self._node_id = mesh.me.node_id
        self.take: Take | None = None
        """What is done with a command that another node sends here."""
        self.takes_up = True
        """False: it has lost its leases, or gives them away."""
        self.takers: tuple[str, ...] = ()
        """The other nodes that take sessions up."""
        self.forwarded = 0
        self.taken = 0
        mesh.answers(SUBJECT, self._asked)

    async def claim(self, session_id: str) -> homes.Here | homes.There:
        try:
            if self.takes_up and (lease := await self._leases.acquire(session_id, self._node_id)) is not None:
                return homes.Here(lease.epoch)
            owner = await self._leases.owner(session_id)
        except leases.LeasesUnavailable as problem:
            raise errors.HomeUnreachable(str(problem)) from problem
        if owner is not None and owner.node_id != self._node_id:
            return homes.There(owner.node_id)
        if owner is None and (taker := next(filter(self.reaches, self.takers), None)) is not None:
            return homes.There(taker)  # nobody's: let one take it up that may
        raise errors.HomeUnreachable(TAKES_NOTHING, hint="ask another node, or again in a moment")

    def reaches(self, node_id: str) -> bool:
        return node_id in self._mesh.peers

    def forward(self, node_id: str, command: commands.AnyCommand, done: tower.Done) -> None:
        self.forwarded += 1
        self._mesh.ask(node_id, SUBJECT, wire.command(command), partial(_answered, done))

    def _asked(self, node_id: str, body: bytes, reply: ports.Reply) -> None:
        self.taken += 1
        if self.take is None:
            reply(wire.outcome(errors.Fenced()))
            return
        try:
            command = wire.read_command(body)
        except errors.InvalidCommand as refusal:
            reply(wire.outcome(refusal))
            return
        self.take(command, partial(_reply, reply))


def _answered(done: tower.Done, answer: bytes | ports.Problem) -> None:
    if isinstance(answer, bytes):
        done(wire.read_outcome(answer))
    elif isinstance(answer, ports.Unreachable) and not answer.sent:
        done(errors.HomeUnreachable(answer.node_id))
    else:
        done(errors.OutcomeUnknown())


def _reply(reply: ports.Reply, outcome: tower.Outcome | errors.CoreError) -> None:
    if isinstance(outcome, errors.ShuttingDown):
        outcome = errors.Fenced()  # it has not happened, and there will be another home in a moment
    reply(wire.outcome(outcome))
