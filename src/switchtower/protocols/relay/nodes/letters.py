"""What nodes say to each other about relay. Knows nothing of how it gets there.

Maps in MessagePack: a later version may add fields, and who does not know them skips them.
"""

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from switchtower.core import events

PRESENCE = "relay.presence"
HOST_SEND = "relay.line.send"
HOST_CALL = "relay.line.call"
HOST_DISCONNECT = "relay.line.cut"
DELAYED_REFUSAL = "relay.refused"
RUN_RPC = "relay.run_rpc"
HOST_RPC = "relay.host_rpc"

NodeMessageT = TypeVar("NodeMessageT", bound=Struct)


class NodeMessageError(Exception):
    """What came from the other node is not what was agreed on."""


class PresenceMessage(Struct, frozen=True, omit_defaults=True):
    """Which hosts are connected to who says this."""

    stamp: int
    """Later words of one node have a greater one."""
    here: dict[str, int] = {}
    """Hosts, and when each came by the nodes' common count."""
    gone: list[str] = []
    is_all: bool = False
    """Whoever is not named is not there."""
    wants_all: bool = False
    """The other is asked to say the same of itself."""


class HostFrameMessage(Struct, frozen=True):
    """A message for a host that is connected to the other node."""

    host_id: str
    frame: bytes
    request_id: str | None = None
    """What its answer will be known by, where there is one."""
    timeout_s: float | None = None


class DisconnectHostMessage(Struct, frozen=True):
    host_id: str
    reason: str


class DelayedRefusalMessage(Struct, frozen=True):
    """A host did not do what the other node had told it."""

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
    """`moved`: the run's home is not the node that was asked."""


encode = msgspec.msgpack.Encoder().encode


def decode(body: bytes, type_: type[NodeMessageT]) -> NodeMessageT:
    """Raises `Unreadable`."""
    try:
        return msgspec.msgpack.decode(body, type=type_)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise NodeMessageError(str(problem)) from problem
