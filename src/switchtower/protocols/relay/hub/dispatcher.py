"""Sends commands and calls to runs on other hosts, over the host's connection, and returns each answer to its sender alone. The
core's commands for such sessions are encoded as relay's messages."""

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from switchtower.cluster import relay_hosts
from switchtower.cluster.mesh.ports import Mesh
from switchtower.core import commands, events
from switchtower.core import errors as core_errors
from switchtower.core.ports import session_service
from switchtower.core.rules import user_actions
from switchtower.core.session import Session
from switchtower.protocols.relay import encoder, errors, messages, wire_values
from switchtower.protocols.relay.hub import connected_hosts


def encode_command(command: commands.AnyCommand, fresh_id: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Returns the message for the host, and the outcome for the sender once it is sent. Refuses commands that relay cannot
    express. `fresh_id` is for commands without an id."""
    who = {"actor": encoder.convert_actor(command.actor), "by": command.actor.name}
    run_id = wire_values.make_core_run_id(command.session_id)
    match command:
        case commands.SendMessage() | commands.QueueMessage():
            text = command.text + user_actions.ENTER
            given = command.client_message_id if isinstance(command, commands.SendMessage) else None
            # The same message sent twice has the same id, so the host types it once.
            input_id = command.idempotency_key or given or fresh_id
            told = {"input_id": input_id, "text": text, **who}
            return "run.send_input", told, {"run_id": run_id, "message_id": input_id}
        case commands.TypeInput():
            told = {"input_id": command.input_id, "text": command.text, **who}
            return "run.send_input", told, {"run_id": run_id, "input_id": command.input_id}
        case commands.TypeKeys():
            return "run.send_stdin", {"text": command.text, **who}, {"run_id": run_id}
        case commands.ResizeTerminal():
            return "run.resize", {"cols": command.cols, "rows": command.rows, **who}, {}
        case commands.CancelRun():
            return "run.stop", {"signal": "kill" if command.force else "term", **who}, {}
        case commands.DecideApproval():
            approve = command.verdict is events.Verdict.APPROVE
            decision = encoder.DECISION_NAMES[command.verdict]
            told = {
                "request_id": wire_values.format_request_id(command.approval_id),
                "decision": "approve_for_session" if approve and command.always else decision,
                **who,
            }
            return f"run.permission.{'approve' if approve else 'deny'}", told, {}
        case _:
            raise core_errors.SessionOnOtherHost(hint="ask for this on the session's own host")


log = logging.getLogger(__name__)

PLAIN_RPC_TIMEOUT = 60.0
"""Seconds for calls that need no decision."""
OTHER_RPC_TIMEOUT = 600.0
"""Seconds for calls of an unknown type: their host may ask a user to decide."""
STORED_TIMEOUT = 5.0
"""Seconds for which the answer to `rpc.run.start` waits for the run."""
MAX_PENDING_COMMANDS = 10_000
"""Commands that their hosts may still refuse."""

OnHostRefusal = Callable[[str, str, dict[str, Any]], None]
"""Gets the host, the run, and the host's error."""


class RequestSender(msgspec.Struct, frozen=True):
    """The app that sent a request."""

    raw: msgspec.Raw = messages.EMPTY
    """The request as it was sent: another host may understand more of it than we do."""
    on_refusal: OnHostRefusal | None = None


NO_SENDER = RequestSender()


class PendingHostCommand(msgspec.Struct, frozen=True):
    """A command that its host may still refuse."""

    host_id: str
    run_id: str
    on_refusal: OnHostRefusal


class HostDispatcher:
    def __init__(
        self,
        tower_: session_service.SessionService,
        hosts: connected_hosts.ConnectedHosts,
        mesh: Mesh | None = None,
        *,
        max_frame_bytes: int = wire_values.DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        """`mesh` connects to other nodes, if there are any. A host reads frames up to `max_frame_bytes`."""
        self._tower = tower_
        self._max_frame_bytes = max_frame_bytes
        self._hosts = hosts
        self._mesh = mesh
        # A host gets commands from several nodes; the prefix of a command's id shows which node gets its refusal.
        self._prefix = "" if mesh is None else f"{mesh.local_peer.node_id}."
        if mesh is not None:
            mesh.handle_notifications(relay_hosts.DELAYED_REFUSAL, self._on_remote_refusal)
        self._pending: OrderedDict[str, PendingHostCommand] = OrderedDict()
        """The senders to notify when a host refuses a command, which otherwise has no answer."""
        self._numbers = itertools.count(1)

    async def call(
        self, host_id: str, type_: str, run_id: str | None, request: msgspec.Struct, actor: events.Actor, sender: RequestSender
    ) -> Any:
        """Returns the result of an RPC. Raises `RelayError`."""
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
        """Waits until the journal has a run that its host has just started: a command that the app sends on the answer must find
        it. The wait is bounded, for a host that answers and never sends `run.started`."""
        try:
            session_id = wire_values.parse_run_id(run_id if isinstance(run_id, str) else "")
        except wire_values.InvalidRelayId:
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
        """Sends a command and returns once it is on its way. Raises `RelayError`; a refusal of the host reaches the sender
        later."""
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

    def forward(self, host: str, command: commands.AnyCommand, done: session_service.OutcomeCallback) -> None:
        """Forwards a command of another protocol."""
        try:
            type_, data, outcome = encode_command(command, self._tower.mint("msg"))
            line = self._hosts.get_channel(host)
            frame = self._encode_frame(type_, host, wire_values.format_run_id(command.session_id), data)
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
        frame = connected_hosts.encode_host_command(type_, self._tower.now_ms(), host_id=host_id, run_id=run_id, data=data)
        wire_values.check_frame_length(frame, self._max_frame_bytes)
        return frame

    def on_host_refusal(self, host_id: str, problem: dict[str, Any]) -> None:
        """A host refused a command. Without our id of the command no sender can be notified."""
        command_id = problem.pop("command_id", None)
        if not isinstance(command_id, str):
            return
        if self._mesh is None or command_id.startswith(self._prefix):
            self._notify_sender(host_id, command_id, problem)
            return
        node_id = command_id.rpartition(".")[0]
        if node_id in self._mesh.peers:
            refusal = relay_hosts.DelayedRefusalMessage(host_id, command_id, problem)
            self._mesh.notify(node_id, relay_hosts.DELAYED_REFUSAL, relay_hosts.encode(refusal))

    def _on_remote_refusal(self, node_id: str, body: bytes) -> None:
        try:
            refusal = relay_hosts.decode(body, relay_hosts.DelayedRefusalMessage)
        except relay_hosts.NodeMessageError as problem:
            log.warning("node %s says what cannot be read: %s", node_id, problem)
        else:
            self._notify_sender(refusal.host_id, refusal.command_id, refusal.problem)

    def _notify_sender(self, host_id: str, command_id: str, problem: dict[str, Any]) -> None:
        command = self._pending.get(command_id)
        # Ids can be guessed: a host cannot refuse a command that was sent to another.
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
    """Builds the data for a host: all fields of the request, with our decoded values if we know them, and the sender."""
    said = msgspec.json.decode(sender.raw, type=dict[str, Any])
    read: dict[str, Any] = msgspec.to_builtins(request)
    # Null is the default, which a host may know only as an absent field.
    said = {name: value for name, value in said.items() if value is not None or name not in read}
    read = {name: value for name, value in read.items() if value is not None}
    return {**said, **read, "actor": encoder.convert_actor(actor), "by": actor.name}
