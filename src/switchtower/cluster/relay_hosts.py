"""Relay hosts that are connected to other nodes: each node announces its hosts, and a message to a remote host is sent by way
of its node.

Clocks of machines differ, so connections are numbered by a logical clock that all nodes share: a node that receives a greater
number continues from there. A host that reconnects to a second node thus has a greater number there than at the first, unless
the second has not received the first's number yet. Then the node's id decides, the same everywhere: of two connections exactly
one remains.

Presence messages are not lost: nodes that connect send each other everything they have. When a node cannot be reached, its
hosts count as offline, and are announced again when it reconnects.

The messages between nodes about relay, and requests that wait for a reply, with problems on the way as relay errors. Knows
nothing of the transport.

Messages are maps in MessagePack: a later version may add fields, and a node that does not know them skips them."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Struct

from switchtower.cluster.mesh import ports
from switchtower.cluster.mesh.ports import Mesh
from switchtower.core import events
from switchtower.protocols.relay import errors, messages
from switchtower.protocols.relay.errors import RunMoved
from switchtower.protocols.relay.hub.connected_hosts import ConnectedHost, ConnectedHosts, OnSent

PRESENCE = "relay.presence"
HOST_SEND = "relay.line.send"
HOST_CALL = "relay.line.call"
HOST_DISCONNECT = "relay.line.cut"
DELAYED_REFUSAL = "relay.refused"
RUN_RPC = "relay.run_rpc"
HOST_RPC = "relay.host_rpc"

NodeMessageT = TypeVar("NodeMessageT", bound=Struct)


class NodeMessageError(Exception):
    """The message of the other node cannot be decoded."""


class PresenceMessage(Struct, frozen=True, omit_defaults=True):
    """The hosts that are connected to the sender."""

    stamp: int
    """Later messages of one node have a greater stamp."""
    here: dict[str, int] = {}
    """Hosts, with the logical time of their connection."""
    gone: list[str] = []
    is_all: bool = False
    """The message is complete: a host that is not named is not connected."""
    wants_all: bool = False
    """The receiver must send its own complete presence."""


class HostFrameMessage(Struct, frozen=True):
    """A message for a host that is connected to the other node."""

    host_id: str
    frame: bytes
    request_id: str | None = None
    """The id of the host's response, when there is one."""
    timeout_s: float | None = None


class DisconnectHostMessage(Struct, frozen=True):
    host_id: str
    reason: str


class DelayedRefusalMessage(Struct, frozen=True):
    """A host refused a command that the other node had sent it."""

    host_id: str
    command_id: str
    problem: dict[str, Any]


class NodeRpcMessage(Struct, frozen=True):
    """A call that the other node's own machine answers."""

    type: str
    data: bytes
    actor: events.Actor
    run_id: str | None = None


class NodeReply(Struct, frozen=True, omit_defaults=True):
    ok: bool
    result: Any = None
    error: str | None = None
    why: Literal["refused", "offline", "moved"] = "refused"
    """`moved`: the called node does not own the run's session."""


encode = msgspec.msgpack.Encoder().encode


def decode(body: bytes, type_: type[NodeMessageT]) -> NodeMessageT:
    """Raises `NodeMessageError`."""
    try:
        return msgspec.msgpack.decode(body, type=type_)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise NodeMessageError(str(problem)) from problem


NO_REPLY = "the node of this run gave no answer; try again"


OnReply = Callable[[NodeReply | errors.RelayError], None]


def send_request(mesh: ports.Mesh, node_id: str, subject: str, message: msgspec.Struct, on_reply: OnReply) -> None:
    def done(answer: bytes | ports.MeshProblem) -> None:
        on_reply(_decode_reply(answer))

    mesh.request(node_id, subject, encode(message), done)


async def send_node_request(mesh: ports.Mesh, node_id: str, subject: str, message: msgspec.Struct) -> NodeReply:
    """Waits for as long as the other node is connected. Raises `RelayError` and `RunMoved`."""
    answer: asyncio.Future[NodeReply | errors.RelayError] = asyncio.get_running_loop().create_future()

    def told(outcome: NodeReply | errors.RelayError) -> None:
        if not answer.done():
            answer.set_result(outcome)

    send_request(mesh, node_id, subject, message, told)
    outcome = await answer
    if isinstance(outcome, errors.RelayError):
        raise outcome
    if outcome.ok:
        return outcome
    raise convert_reply_error(outcome)


def convert_reply_error(answer: NodeReply) -> Exception:
    match answer.why:
        case "moved":
            return RunMoved()
        case "offline":
            return errors.HostOffline(answer.error or errors.HOST_OFFLINE)
        case "refused":
            return errors.RelayError(answer.error or "failed")


def make_error_reply(problem: errors.RelayError) -> NodeReply:
    """Returns a refusal as a reply to the other node."""
    return NodeReply(False, error=problem.text, why="offline" if isinstance(problem, errors.HostOffline) else "refused")


def _decode_reply(answer: bytes | ports.MeshProblem) -> NodeReply | errors.RelayError:
    match answer:
        case ports.NodeUnreachable():
            return errors.HostOffline(errors.HOST_GONE if answer.sent else errors.HOST_OFFLINE)
        case ports.NodeRequestFailed():
            return errors.RelayError(NO_REPLY)
        case _:
            try:
                return decode(answer, NodeReply)
            except NodeMessageError:
                return errors.RelayError(NO_REPLY)


class ClaimChanges(NamedTuple):
    """The changes that a presence message of another node causes."""

    appeared: frozenset[str] = frozenset()
    """Hosts that no other node had before."""
    vanished: frozenset[str] = frozenset()
    """Hosts that no other node has any more."""
    replaced: frozenset[str] = frozenset()
    """Hosts of this node that have since connected to another node."""


class HostClaims:
    def __init__(self, own_node_id: str) -> None:
        self._own_node_id = own_node_id
        self._clock = 0
        self._own: dict[str, int] = {}
        self._others: dict[str, dict[str, int]] = {}
        self._last_stamps: dict[str, int] = {}

    def __contains__(self, host_id: str) -> bool:
        """Returns whether another node has the host."""
        return any(host_id in hosts for hosts in self._others.values())

    def find_holder(self, host_id: str) -> str | None:
        """Returns the other node that has the host; if several claim it, the one that it connected to last."""
        found = [(hosts[host_id], node_id) for node_id, hosts in self._others.items() if host_id in hosts]
        return max(found)[1] if found else None

    def list_holders(self, host_id: str) -> list[str]:
        return [node_id for node_id, hosts in self._others.items() if host_id in hosts]

    # Local changes, and the messages that announce them

    def claim(self, host_id: str) -> PresenceMessage:
        self._own[host_id] = stamp = self._increment_clock()
        return PresenceMessage(stamp, here={host_id: stamp})

    def release(self, host_id: str) -> PresenceMessage:
        self._own.pop(host_id, None)
        return PresenceMessage(self._increment_clock(), gone=[host_id])

    def make_full_presence(self, *, wants_all: bool) -> PresenceMessage:
        return PresenceMessage(self._increment_clock(), here=dict(self._own), is_all=True, wants_all=wants_all)

    # Messages of other nodes

    def apply_presence(self, node_id: str, presence: PresenceMessage) -> ClaimChanges:
        self._clock = max(self._clock, presence.stamp, *presence.here.values())
        if presence.stamp <= self._last_stamps.get(node_id, 0):
            return ClaimChanges()  # from a connection that has ended: later messages were received already
        self._last_stamps[node_id] = presence.stamp
        hosts = self._others.get(node_id, {})
        now = {} if presence.is_all else {host_id: stamp for host_id, stamp in hosts.items() if host_id not in presence.gone}
        return self._replace(node_id, now | presence.here)

    def remove_node(self, node_id: str) -> ClaimChanges:
        """The node cannot be reached, so its hosts are removed. Its last stamp is remembered, to detect older messages."""
        return self._replace(node_id, {})

    def _replace(self, node_id: str, now: dict[str, int]) -> ClaimChanges:
        before = self._others.pop(node_id, {})
        named = before.keys() | now.keys()
        known = {host_id for host_id in named if host_id in self}
        if now:
            self._others[node_id] = now
        return ClaimChanges(
            appeared=frozenset(now.keys() - before.keys() - known),
            vanished=frozenset(before.keys() - now.keys() - known),
            replaced=frozenset(
                host_id
                for host_id in now.keys() & self._own.keys()
                if (now[host_id], node_id) > (self._own[host_id], self._own_node_id)
            ),
        )

    def _increment_clock(self) -> int:
        self._clock += 1
        return self._clock


class RemoteHostChannel:
    """A host that is connected to another node. Implements `HostChannel`."""

    def __init__(self, mesh: Mesh, node_id: str, host_id: str) -> None:
        self._mesh = mesh
        self._node_id = node_id
        self._host_id = host_id

    def post(self, frame: bytes, done: OnSent) -> None:
        def told(outcome: NodeReply | errors.RelayError) -> None:
            if isinstance(outcome, errors.RelayError):
                done(outcome)
            else:
                done(None if outcome.ok else errors.HostOffline())

        send_request(self._mesh, self._node_id, HOST_SEND, HostFrameMessage(self._host_id, frame), told)

    async def call(self, frame: bytes, request_id: str, timeout_s: float | None) -> messages.Response:
        letter = HostFrameMessage(self._host_id, frame, request_id, timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await send_node_request(self._mesh, self._node_id, HOST_CALL, letter)
        except TimeoutError:
            raise errors.HostOffline(errors.HOST_SILENT) from None
        return msgspec.convert(answer.result, messages.Response)


log = logging.getLogger(__name__)

MAX_CONCURRENT_CALLS = 10_000
"""The number of calls of other nodes to hosts that are connected here."""


class HostObserver(Protocol):
    """An observer that tracks hosts."""

    def on_remote_host_connected(self, host_id: str) -> None: ...

    def on_remote_host_disconnected(self, host_id: str) -> None: ...


class RemoteHosts:
    """Implements `RemoteHostsPort`."""

    def __init__(self, mesh: ports.Mesh) -> None:
        self._mesh = mesh
        self._claims = HostClaims(mesh.local_peer.node_id)
        self._calls: set[asyncio.Task[None]] = set()
        self._connected_hosts: ConnectedHosts
        self._observer: HostObserver
        self._unwatch: Callable[[], None] = lambda: None

    def open(self, connected_hosts: ConnectedHosts, observer: HostObserver) -> None:
        self._connected_hosts = connected_hosts
        self._observer = observer
        mesh = self._mesh
        mesh.handle_notifications(PRESENCE, self._on_presence)
        mesh.handle_notifications(HOST_DISCONNECT, self._on_disconnect_request)
        mesh.handle_requests(HOST_SEND, self._on_send_request)
        mesh.handle_requests(HOST_CALL, self._on_call_request)
        self._unwatch = mesh.watch(self._on_node_connected, self._on_node_disconnected)

    async def close(self) -> None:
        self._unwatch()
        for call in tuple(self._calls):
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    # The port

    def __contains__(self, host_id: str) -> bool:
        return host_id in self._claims

    def find_channel(self, host_id: str) -> RemoteHostChannel | None:
        node_id = self._claims.find_holder(host_id)
        return None if node_id is None else RemoteHostChannel(self._mesh, node_id, host_id)

    def on_host_connected(self, host_id: str) -> None:
        self._notify_all(self._claims.claim(host_id))

    def on_host_disconnected(self, host_id: str) -> None:
        self._notify_all(self._claims.release(host_id))

    def disconnect(self, host_id: str, reason: str) -> None:
        for node_id in self._claims.list_holders(host_id):
            self._mesh.notify(
                node_id,
                HOST_DISCONNECT,
                encode(DisconnectHostMessage(host_id, reason)),
            )

    # Presence

    def _on_node_connected(self, peer: ports.MeshPeer) -> None:
        self._notify(peer.node_id, self._claims.make_full_presence(wants_all=True))

    def _on_node_disconnected(self, peer: ports.MeshPeer) -> None:
        self._apply_changes(self._claims.remove_node(peer.node_id))

    def _on_presence(self, node_id: str, body: bytes) -> None:
        said = _decode_or_log(node_id, body, PresenceMessage)
        if said is None:
            return
        if said.wants_all:
            self._notify(node_id, self._claims.make_full_presence(wants_all=False))
        # Messages of a node that cannot be called are ignored: when it can be, it is asked for everything again.
        if node_id in self._mesh.peers:
            self._apply_changes(self._claims.apply_presence(node_id, said))

    def _apply_changes(self, change: ClaimChanges) -> None:
        for host_id in change.replaced:
            self._connected_hosts.disconnect_replaced(host_id)
        for host_id in change.appeared:
            self._observer.on_remote_host_connected(host_id)
        for host_id in change.vanished:
            self._observer.on_remote_host_disconnected(host_id)

    def _notify_all(self, presence: PresenceMessage) -> None:
        body = encode(presence)
        for node_id in tuple(self._mesh.peers):
            self._mesh.notify(node_id, PRESENCE, body)

    def _notify(self, node_id: str, presence: PresenceMessage) -> None:
        self._mesh.notify(node_id, PRESENCE, encode(presence))

    # Requests of other nodes for hosts that are connected here. Nothing is forwarded a second time, so there are no loops.

    def _on_disconnect_request(self, node_id: str, body: bytes) -> None:
        if (said := _decode_or_log(node_id, body, DisconnectHostMessage)) is not None:
            self._connected_hosts.disconnect_local(said.host_id, said.reason)

    def _on_send_request(self, node_id: str, body: bytes, reply: ports.ReplyCallback) -> None:
        asked = _decode_or_log(node_id, body, HostFrameMessage)
        line = None if asked is None else self._connected_hosts.find_local(asked.host_id)
        if asked is None or line is None:
            _send_reply(reply, make_error_reply(errors.HostOffline()))
        else:
            line.post(asked.frame, lambda _: _send_reply(reply, NodeReply(True)))

    def _on_call_request(self, node_id: str, body: bytes, reply: ports.ReplyCallback) -> None:
        asked = _decode_or_log(node_id, body, HostFrameMessage)
        line = None if asked is None else self._connected_hosts.find_local(asked.host_id)
        if asked is None or line is None or asked.request_id is None:
            _send_reply(reply, make_error_reply(errors.HostOffline()))
        elif len(self._calls) >= MAX_CONCURRENT_CALLS:
            _send_reply(reply, make_error_reply(errors.RelayError(errors.TOO_MANY_CALLS)))
        else:
            task = asyncio.get_running_loop().create_task(self._call(line, asked, asked.request_id, reply))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def _call(self, line: ConnectedHost, request: HostFrameMessage, request_id: str, reply: ports.ReplyCallback) -> None:
        answer = make_error_reply(errors.HostOffline(errors.HOST_GONE))
        try:
            answer = NodeReply(True, msgspec.to_builtins(await line.call(request.frame, request_id, request.timeout_s)))
        except errors.RelayError as refusal:
            answer = make_error_reply(refusal)
        finally:
            _send_reply(reply, answer)


def _send_reply(reply: ports.ReplyCallback, answer: NodeReply) -> None:
    reply(encode(answer))


def _decode_or_log(node_id: str, body: bytes, type_: type[NodeMessageT]) -> NodeMessageT | None:
    try:
        return decode(body, type_)
    except NodeMessageError as problem:
        log.warning("node %s says what cannot be read: %s", node_id, problem)
        return None
