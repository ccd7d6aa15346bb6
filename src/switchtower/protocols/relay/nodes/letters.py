"""What nodes say to each other about relay. Knows nothing of how it gets there.

Maps in MessagePack: a later version may add fields, and who does not know them skips them.
"""

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from switchtower.core import events

PRESENCE = "relay.presence"
LINE_SEND = "relay.line.send"
LINE_CALL = "relay.line.call"
LINE_CUT = "relay.line.cut"
LATE_REFUSAL = "relay.refused"
RUN_RPC = "relay.run_rpc"
HOST_RPC = "relay.host_rpc"

Letter = TypeVar("Letter", bound=Struct)


class Unreadable(Exception):
    """What came from the other node is not what was agreed on."""


class Presence(Struct, frozen=True, omit_defaults=True):
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


class ToLine(Struct, frozen=True):
    """A message for a host that is connected to the other node."""

    host_id: str
    frame: bytes
    request_id: str | None = None
    """What its answer will be known by, where there is one."""
    timeout_s: float | None = None


class Cut(Struct, frozen=True):
    host_id: str
    reason: str


class LateRefusal(Struct, frozen=True):
    """A host did not do what the other node had told it."""

    host_id: str
    command_id: str
    problem: dict[str, Any]


class Rpc(Struct, frozen=True):
    """A call that the other node's own machine answers."""

    type: str
    data: bytes
    actor: events.Actor
    run_id: str | None = None


class Answer(Struct, frozen=True, omit_defaults=True):
    ok: bool
    result: Any = None
    error: str | None = None
    why: Literal["refused", "offline", "moved"] = "refused"
    """`moved`: the run's home is not the node that was asked."""


encode = msgspec.msgpack.Encoder().encode


def decode(body: bytes, type_: type[Letter]) -> Letter:
    """Raises `Unreadable`."""
    try:
        return msgspec.msgpack.decode(body, type=type_)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise Unreadable(str(problem)) from problem
