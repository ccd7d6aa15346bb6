"""What is asked of runs on other hosts: sent over the host's line, and answered to who asked, to nobody else."""

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from switchtower.core import commands, events, tower
from switchtower.core import errors as core_errors
from switchtower.core.session import Session
from switchtower.protocols.relay import errors, frame_limits, messages, names, outbound
from switchtower.protocols.relay.hub import forward, roster
from switchtower.protocols.relay.nodes import letters
from switchtower.transports.mesh.ports import Mesh

log = logging.getLogger(__name__)

PLAIN_RPC_TIMEOUT = 60.0
"""For calls that nobody has to decide about."""
OTHER_RPC_TIMEOUT = 600.0
"""For calls of a type that we do not know: their host may put them to a person."""
STORED_TIMEOUT = 5.0
"""How long the answer to `rpc.run.start` waits for the run."""
MAX_PENDING_COMMANDS = 10_000
"""Commands that their hosts may yet refuse."""

OnHostRefusal = Callable[[str, str, dict[str, Any]], None]
"""Gets the host, the run, and what the host said."""


class RequestSender(msgspec.Struct, frozen=True):
    """An app that asks."""

    raw: msgspec.Raw = messages.EMPTY
    """What it sent: another host may understand more of it than we do."""
    on_refusal: OnHostRefusal | None = None


NO_SENDER = RequestSender()


class PendingHostCommand(msgspec.Struct, frozen=True):
    """A command that its host may yet refuse."""

    host_id: str
    run_id: str
    on_refusal: OnHostRefusal


class HostDispatcher:
    def __init__(
        self,
        tower_: tower.SessionService,
        hosts: roster.ConnectedHosts,
        mesh: Mesh | None = None,
        *,
        max_frame_bytes: int = frame_limits.DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        """`mesh` is the way to other nodes, if there are any. A host reads frames up to `max_frame_bytes`."""
        self._tower = tower_
        self._max_frame_bytes = max_frame_bytes
        self._hosts = hosts
        self._mesh = mesh
        # A host is told things by several nodes; its refusal says by its number which of them to tell.
        self._prefix = "" if mesh is None else f"{mesh.local_peer.node_id}."
        if mesh is not None:
            mesh.handle_notifications(letters.DELAYED_REFUSAL, self._on_remote_refusal)
        self._pending: OrderedDict[str, PendingHostCommand] = OrderedDict()
        """Who to tell when a host refuses a command that has no answer of its own."""
        self._numbers = itertools.count(1)

    async def call(
        self, host_id: str, type_: str, run_id: str | None, request: msgspec.Struct, actor: events.Actor, sender: RequestSender
    ) -> Any:
        """The result of an RPC. Raises `Refused`."""
        data = _build_host_data(request, actor, sender)
        line = self._hosts.get_channel(host_id)
        frame = self._encode_frame(type_, host_id, run_id, data)
        response = await line.call(frame, data["request_id"], _get_timeout(type_))
        if not response.ok:
            raise errors.RelayError(response.error or "failed")
        if type_ == "rpc.run.start" and isinstance(response.result, dict):
            await self._wait_until_stored(response.result.get("run_id"))
        return response.result

    async def _wait_until_stored(self, run_id: object) -> None:
        """Waits until the journal has a run that its host has just started: a command that the app sends on the answer must
        find it. A host that answers and never sends `run.started` is waited for only so long."""
        try:
            session_id = names.parse_run_id(run_id if isinstance(run_id, str) else "")
        except names.InvalidRelayId:
            return
        stored = asyncio.Event()

        def saw(session: Session, event: events.AnyEvent) -> None:
            if session.id == session_id:
                stored.set()

        unwatch = self._tower.watch(saw)
        try:
            async with asyncio.timeout(STORED_TIMEOUT):
                if await self._tower.find_card(session_id) is None:
                    await stored.wait()
        except (TimeoutError, core_errors.CoreError) as problem:
            log.warning("the host answered that it has started %s, but has not sent `run.started`: %r", session_id, problem)
        finally:
            unwatch()

    async def send(
        self, host_id: str, type_: str, run_id: str, request: msgspec.Struct, actor: events.Actor, sender: RequestSender
    ) -> None:
        """A command, once it is on its way. Raises `Refused`; that its host refuses it, the sender hears later."""
        data = _build_host_data(request, actor, sender)
        line = self._hosts.get_channel(host_id)
        if sender.on_refusal is not None:
            data["command_id"] = self._register_pending(PendingHostCommand(host_id, run_id, sender.on_refusal))
        try:
            frame = self._encode_frame(type_, host_id, run_id, data)
        except errors.FrameTooLong:
            self._pending.pop(data.get("command_id", ""), None)
            raise
        posted: asyncio.Future[errors.RelayError | None] = asyncio.get_running_loop().create_future()

        def done(problem: errors.RelayError | None) -> None:
            if not posted.done():
                posted.set_result(problem)

        line.post(frame, done)
        problem = await posted
        if problem is not None:
            self._pending.pop(data.get("command_id", ""), None)
            raise problem

    def forward(self, host: str, command: commands.AnyCommand, done: tower.OutcomeCallback) -> None:
        """What other protocols ask."""
        try:
            type_, data, outcome = forward.encode_command(command, self._tower.mint("msg"))
            line = self._hosts.get_channel(host)
            frame = self._encode_frame(type_, host, names.format_run_id(command.session_id), data)
        except core_errors.CoreError as refusal:
            done(refusal)
            return
        except errors.FrameTooLong as refusal:
            done(core_errors.InvalidCommand(refusal.text, hint="send it in smaller parts"))
            return
        except errors.HostOffline:
            done(core_errors.HostUnreachable(host, hint="ask again when it is back"))
            return

        def posted(problem: errors.RelayError | None) -> None:
            away = None if problem is None else core_errors.HostUnreachable(host, hint="ask again when it is back")
            done({"after_seq": 0, **outcome} if away is None else away)

        line.post(frame, posted)

    def _encode_frame(self, type_: str, host_id: str, run_id: str | None, data: dict[str, Any]) -> bytes:
        """Raises `FrameTooLong`."""
        frame = roster.encode_host_command(type_, self._tower.now_ms(), host_id=host_id, run_id=run_id, data=data)
        frame_limits.check_frame_length(frame, self._max_frame_bytes)
        return frame

    def on_host_refusal(self, host_id: str, problem: dict[str, Any]) -> None:
        """A host did not do what it was told. Without our number for it nobody can be told."""
        command_id = problem.pop("command_id", None)
        if not isinstance(command_id, str):
            return
        if self._mesh is None or command_id.startswith(self._prefix):
            self._notify_sender(host_id, command_id, problem)
            return
        node_id = command_id.rpartition(".")[0]
        if node_id in self._mesh.peers:
            refusal = letters.DelayedRefusalMessage(host_id, command_id, problem)
            self._mesh.notify(node_id, letters.DELAYED_REFUSAL, letters.encode(refusal))

    def _on_remote_refusal(self, node_id: str, body: bytes) -> None:
        try:
            refusal = letters.decode(body, letters.DelayedRefusalMessage)
        except letters.NodeMessageError as problem:
            log.warning("node %s says what cannot be read: %s", node_id, problem)
        else:
            self._notify_sender(refusal.host_id, refusal.command_id, refusal.problem)

    def _notify_sender(self, host_id: str, command_id: str, problem: dict[str, Any]) -> None:
        command = self._pending.get(command_id)
        # Numbers can be guessed: what was asked of one host, another cannot refuse.
        if command is not None and command.host_id == host_id:
            del self._pending[command_id]
            command.on_refusal(host_id, command.run_id, problem)

    def _register_pending(self, command: PendingHostCommand) -> str:
        command_id = f"{self._prefix}{next(self._numbers)}"
        self._pending[command_id] = command
        if len(self._pending) > MAX_PENDING_COMMANDS:
            self._pending.popitem(last=False)
        return command_id


def _get_timeout(type_: str) -> float | None:
    if type_ in messages.GATED:
        return None
    return PLAIN_RPC_TIMEOUT if type_ in messages.RPCS else OTHER_RPC_TIMEOUT


def _build_host_data(request: msgspec.Struct, actor: events.Actor, sender: RequestSender) -> dict[str, Any]:
    """What a host is told: all that was said, as we read it where we do, and by whom."""
    said = msgspec.json.decode(sender.raw, type=dict[str, Any])
    read: dict[str, Any] = msgspec.to_builtins(request)
    # Null is the default, which a host may know only as an absent field.
    said = {name: value for name, value in said.items() if value is not None or name not in read}
    read = {name: value for name, value in read.items() if value is not None}
    return {**said, **read, "actor": outbound.convert_actor(actor), "by": actor.name}
