"""Session ownership as one node knows it: the leases name the owner, and the mesh forwards commands to it.

Commands, outcomes and refusals between nodes, as bytes. Pure.

Nodes of two versions communicate during a rolling upgrade: a command that a node does not know is refused as such, and fields
that it does not know are ignored."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import msgspec
from msgspec import Struct

from switchtower.cluster.mesh import ports
from switchtower.core import codec, commands, errors, events
from switchtower.core.ports import cluster, session_service

_encode = msgspec.msgpack.Encoder().encode


class CommandFrame(Struct, array_like=True):
    name: str
    body: msgspec.Raw


class OutcomeFrame(Struct, array_like=True):
    outcome: dict[str, Any] | None
    refusal: str | None = None
    """The code of the refusal."""
    detail: str | None = None
    hint: str | None = None


EncodedEvent = tuple[str, bytes]
"""An event as the journal has it: its kind, and its data."""


class MirrorFrame(Struct, array_like=True):
    """A `MirrorRun`: its events have various types, so each one carries its kind."""

    session_id: str
    host: str
    run_id: str
    reports: list[tuple[int, list[EncodedEvent]]]
    opening: list[EncodedEvent]


_command_decoder = msgspec.msgpack.Decoder(CommandFrame).decode
_outcome_decoder = msgspec.msgpack.Decoder(OutcomeFrame).decode
_mirror_decoder = msgspec.msgpack.Decoder(MirrorFrame).decode
_COMMANDS = {
    kind.wire_name: msgspec.msgpack.Decoder(kind) for kind in get_args(commands.AnyCommand) if kind is not commands.MirrorRun
}
_REFUSALS = {kind.code: kind for kind in errors.CoreError.__subclasses__()}


def encode_command(asked: commands.AnyCommand) -> bytes:
    body = _encode(_encode_mirror(asked) if isinstance(asked, commands.MirrorRun) else asked)
    return _encode(CommandFrame(asked.wire_name, msgspec.Raw(body)))


def decode_command(body: bytes) -> commands.AnyCommand:
    """Raises `errors.InvalidCommand` for a command that this version does not know."""
    try:
        asked = _command_decoder(body)
        if asked.name == commands.MirrorRun.wire_name:
            return _decode_mirror(_mirror_decoder(asked.body))
        known = _COMMANDS.get(asked.name)
        if known is None:
            raise errors.InvalidCommand(f"`{asked.name[:80]}` is not known to the session's home", hint="upgrade all nodes")
        read: commands.AnyCommand = known.decode(asked.body)
    except (msgspec.MsgspecError, KeyError) as problem:
        raise errors.InvalidCommand("the session's home could not read it", hint="upgrade all nodes") from problem
    return read


def encode_outcome(told: session_service.SubmitOutcome | errors.CoreError) -> bytes:
    if isinstance(told, errors.CoreError):
        return _encode(OutcomeFrame(None, told.code, told.detail, told.hint))
    return _encode(OutcomeFrame(told))


def decode_outcome(body: bytes) -> session_service.SubmitOutcome | errors.CoreError:
    try:
        told = _outcome_decoder(body)
    except msgspec.MsgspecError:
        return errors.OutcomeUnknown("its answer could not be read")
    if told.refusal is not None:
        kind = _REFUSALS.get(told.refusal, errors.CoreError)
        return kind(told.detail, hint=told.hint)
    return told.outcome or {}


def _encode_mirror(asked: commands.MirrorRun) -> MirrorFrame:
    reports = [(report.seq, _encode_events(report.events)) for report in asked.reports]
    return MirrorFrame(asked.session_id, asked.host, asked.run_id, reports, _encode_events(asked.opening))


def _decode_mirror(told: MirrorFrame) -> commands.MirrorRun:
    return commands.MirrorRun(
        session_id=told.session_id,
        host=told.host,
        run_id=told.run_id,
        reports=tuple(commands.HostReport(seq, _decode_events(spelled)) for seq, spelled in told.reports),
        opening=_decode_events(told.opening),
    )


def _encode_events(told: tuple[events.AnyEvent, ...]) -> list[EncodedEvent]:
    return [(event.kind, codec.encode(event)) for event in told]


def _decode_events(spelled: list[EncodedEvent]) -> tuple[events.AnyEvent, ...]:
    return tuple(codec.decode(kind, data) for kind, data in spelled)


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
        self._mesh.request(node_id, SUBJECT, encode_command(command), partial(_decode_response, done))

    def _on_request(self, node_id: str, body: bytes, reply: ports.ReplyCallback) -> None:
        if self.take is None:
            reply(encode_outcome(errors.Fenced()))
            return
        try:
            command = decode_command(body)
        except errors.InvalidCommand as refusal:
            reply(encode_outcome(refusal))
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
        done(decode_outcome(answer))
    elif isinstance(answer, ports.NodeUnreachable) and not answer.sent:
        done(errors.OwnerUnreachable(answer.node_id))
    else:
        done(errors.OutcomeUnknown())


def _send_outcome(reply: ports.ReplyCallback, outcome: session_service.SubmitOutcome | errors.CoreError) -> None:
    if isinstance(outcome, errors.ShuttingDown):
        outcome = errors.Fenced()  # the command had no effect, and there will be another owner in a moment
    reply(encode_outcome(outcome))
