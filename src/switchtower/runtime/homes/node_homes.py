"""The homes of sessions, as one node knows them: leases say where they are, the mesh asks there."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from switchtower.core import commands, errors, homes, leases, tower
from switchtower.runtime.homes import wire
from switchtower.transports.mesh import ports

log = logging.getLogger(__name__)

SUBJECT = "command"
CLAIMED_AT_ONCE = 1_000
TAKES_NOTHING = "this node takes nothing up any more"

Found = homes.Here | homes.There | homes.Nobody
Claim = tuple[str, bool]
"""A session, and whether it may begin with it."""
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
        self.keeps = True
        """False: what it has is not its own any more."""
        self.takers: tuple[str, ...] = ()
        """The other nodes that take sessions up."""
        self.forwarded = 0
        self._claims: dict[Claim, asyncio.Future[Found]] = {}
        self._claiming: asyncio.Task[None] | None = None
        mesh.answers(SUBJECT, self._asked)

    async def claim(self, session_id: str, *, begins: bool = False) -> Found:
        """What is claimed while the database is asked goes into the next question, however much that is."""
        asked = (session_id, begins)
        claim = self._claims.get(asked)
        if claim is None:
            claim = self._claims[asked] = asyncio.get_running_loop().create_future()
        if self._claiming is None:
            self._claiming = asyncio.get_running_loop().create_task(self._claim_all())
        return await asyncio.shield(claim)

    async def _claim_all(self) -> None:
        try:
            while self._claims:
                claims, self._claims = self._claims, {}
                for begins in (False, True):
                    session_ids = [session_id for session_id, its_begins in claims if its_begins is begins]
                    for first in range(0, len(session_ids), CLAIMED_AT_ONCE):
                        page = session_ids[first : first + CLAIMED_AT_ONCE]
                        for session_id, found in (await self._found_or_not(page, begins=begins)).items():
                            _settle(claims[session_id, begins], found)
        finally:
            self._claiming = None

    async def _found_or_not(self, session_ids: list[str], *, begins: bool) -> dict[str, Found | errors.HomeUnreachable]:
        try:
            return await self._found(session_ids, begins=begins)
        except Exception as problem:
            if not isinstance(problem, leases.LeasesUnavailable):
                log.exception("the homes of sessions cannot be told")
            return dict.fromkeys(session_ids, errors.HomeUnreachable(str(problem)))

    async def _found(self, session_ids: list[str], *, begins: bool) -> dict[str, Found | errors.HomeUnreachable]:
        taken = await self._leases.acquire_all(session_ids, self._node_id, begin=begins) if self.takes_up else []
        found: dict[str, Found | errors.HomeUnreachable] = {lease.session_id: homes.Here(lease.epoch) for lease in taken}
        if others := [session_id for session_id in session_ids if session_id not in found]:
            owners = {lease.session_id: lease for lease in await self._leases.owners(others)}
            found |= {session_id: self._elsewhere(owners.get(session_id)) for session_id in others}
        return found

    def _elsewhere(self, owner: leases.Lease | None) -> Found | errors.HomeUnreachable:
        if owner is not None and owner.node_id != self._node_id:
            return homes.There(owner.node_id)
        if owner is None and self.takes_up:
            return homes.Nobody()
        if owner is not None and self.keeps and not self.takes_up:
            return homes.Here(owner.epoch)  # it gives its sessions away, and this is still its own
        if owner is None and (taker := next(filter(self.reaches, self.takers), None)) is not None:
            return homes.There(taker)  # nobody's: let one take it up that may
        return errors.HomeUnreachable(TAKES_NOTHING, hint="ask another node, or again in a moment")

    def reaches(self, node_id: str) -> bool:
        return node_id in self._mesh.peers

    def forward(self, node_id: str, command: commands.AnyCommand, done: tower.Done) -> None:
        self.forwarded += 1
        self._mesh.ask(node_id, SUBJECT, wire.command(command), partial(_answered, done))

    def _asked(self, node_id: str, body: bytes, reply: ports.Reply) -> None:
        if self.take is None:
            reply(wire.outcome(errors.Fenced()))
            return
        try:
            command = wire.read_command(body)
        except errors.InvalidCommand as refusal:
            reply(wire.outcome(refusal))
            return
        self.take(command, partial(_reply, reply))


def _settle(claim: "asyncio.Future[Found]", found: Found | errors.HomeUnreachable) -> None:
    if claim.done():
        return
    if isinstance(found, errors.HomeUnreachable):
        claim.set_exception(found)
        claim.exception()  # whoever asked may not wait any more
    else:
        claim.set_result(found)


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
