"""The messages between nodes about relay, and requests that wait for a reply, with problems on the way as relay errors. Knows
nothing of the transport.

Messages are maps in MessagePack: a later version may add fields, and a node that does not know them skips them.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from switchtower.cluster.mesh import ports
from switchtower.core import events
from switchtower.protocols.relay import errors
from switchtower.protocols.relay.errors import RunMoved

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


async def request(mesh: ports.Mesh, node_id: str, subject: str, message: msgspec.Struct) -> NodeReply:
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
