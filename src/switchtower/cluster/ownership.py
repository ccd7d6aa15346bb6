"""Session ownership as one node knows it: the leases name the owner, and the mesh forwards commands to it."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from switchtower.cluster import messages
from switchtower.cluster.mesh import ports
from switchtower.core import commands, errors
from switchtower.core.ports import cluster, session_service

log = logging.getLogger(__name__)

SUBJECT = "command"
CLAIMED_AT_ONCE = 1_000
NOT_ACCEPTING = "this node takes nothing up any more"

OwnershipResult = cluster.OwnedHere | cluster.OwnedBy | cluster.Unowned
ClaimRequest = tuple[str, bool]
"""A session, and whether it may be created."""
TakeCommand = Callable[[commands.AnyCommand, session_service.OutcomeCallback], None]


class LeasedOwnership:
    """Implements `SessionOwnership`."""

    def __init__(self, leases_: cluster.Leases, mesh: ports.Mesh) -> None:
        self._leases = leases_
        self._mesh = mesh
        self._node_id = mesh.local_peer.node_id
        self.take: TakeCommand | None = None
        """Handles a command that another node forwards to this one."""
        self.takes_up = True
        """False: the node has lost its leases, or releases them."""
        self.keeps = True
        """False: the node no longer owns its sessions."""
        self.takers: tuple[str, ...] = ()
        """The other nodes that accept sessions."""
        self.forwarded = 0
        self._claims: dict[ClaimRequest, asyncio.Future[OwnershipResult]] = {}
        self._claiming: asyncio.Task[None] | None = None
        mesh.handle_requests(SUBJECT, self._on_request)

    async def claim(self, session_id: str, *, begins: bool = False) -> OwnershipResult:
        """Claims that arrive while a query is running are collected into the next query, however many there are."""
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
                        for session_id, found in (await self._claim_batch_safely(page, begins=begins)).items():
                            _resolve_claim(claims[session_id, begins], found)
        finally:
            self._claiming = None

    async def _claim_batch_safely(
        self, session_ids: list[str], *, begins: bool
    ) -> dict[str, OwnershipResult | errors.OwnerUnreachable]:
        try:
            return await self._claim_batch(session_ids, begins=begins)
        except Exception as problem:
            if not isinstance(problem, cluster.LeasesUnavailable):
                log.exception("the homes of sessions cannot be told")
            return dict.fromkeys(session_ids, errors.OwnerUnreachable(str(problem)))

    async def _claim_batch(self, session_ids: list[str], *, begins: bool) -> dict[str, OwnershipResult | errors.OwnerUnreachable]:
        taken = await self._leases.acquire_all(session_ids, self._node_id, begin=begins) if self.takes_up else []
        found: dict[str, OwnershipResult | errors.OwnerUnreachable] = {
            lease.session_id: cluster.OwnedHere(lease.epoch) for lease in taken
        }
        if others := [session_id for session_id in session_ids if session_id not in found]:
            owners = {lease.session_id: lease for lease in await self._leases.find_owners(others)}
            found |= {session_id: self._describe_owner(owners.get(session_id)) for session_id in others}
        return found

    def _describe_owner(self, owner: cluster.Lease | None) -> OwnershipResult | errors.OwnerUnreachable:
        if owner is not None and owner.node_id != self._node_id:
            return cluster.OwnedBy(owner.node_id)
        if owner is None and self.takes_up:
            return cluster.Unowned()
        if owner is not None and self.keeps and not self.takes_up:
            return cluster.OwnedHere(owner.epoch)  # the node is draining, and still owns this session
        if owner is None and (taker := next(filter(self.can_reach, self.takers), None)) is not None:
            return cluster.OwnedBy(taker)  # unowned: a node that accepts sessions can take it
        return errors.OwnerUnreachable(NOT_ACCEPTING, hint="ask another node, or again in a moment")

    def can_reach(self, node_id: str) -> bool:
        return node_id in self._mesh.peers

    def forward(self, node_id: str, command: commands.AnyCommand, done: session_service.OutcomeCallback) -> None:
        self.forwarded += 1
        self._mesh.request(node_id, SUBJECT, messages.encode_command(command), partial(_decode_response, done))

    def _on_request(self, node_id: str, body: bytes, reply: ports.ReplyCallback) -> None:
        if self.take is None:
            reply(messages.encode_outcome(errors.Fenced()))
            return
        try:
            command = messages.decode_command(body)
        except errors.InvalidCommand as refusal:
            reply(messages.encode_outcome(refusal))
            return
        self.take(command, partial(_send_outcome, reply))


def _resolve_claim(claim: "asyncio.Future[OwnershipResult]", found: OwnershipResult | errors.OwnerUnreachable) -> None:
    if claim.done():
        return
    if isinstance(found, errors.OwnerUnreachable):
        claim.set_exception(found)
        claim.exception()  # the caller may have stopped waiting
    else:
        claim.set_result(found)


def _decode_response(done: session_service.OutcomeCallback, answer: bytes | ports.MeshProblem) -> None:
    if isinstance(answer, bytes):
        done(messages.decode_outcome(answer))
    elif isinstance(answer, ports.NodeUnreachable) and not answer.sent:
        done(errors.OwnerUnreachable(answer.node_id))
    else:
        done(errors.OutcomeUnknown())


def _send_outcome(reply: ports.ReplyCallback, outcome: session_service.SubmitOutcome | errors.CoreError) -> None:
    if isinstance(outcome, errors.ShuttingDown):
        outcome = errors.Fenced()  # the command had no effect, and there will be another owner in a moment
    reply(messages.encode_outcome(outcome))
