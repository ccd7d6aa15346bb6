"""The ports of the dispatcher: clients, broadcasts, the ledger of outcomes, and handlers. They have no behaviour."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import UNSET, Struct

from switchtower.core.ports import journal
from switchtower.protocols.pi import inbound


class DispatchClient(Protocol):
    """One connection. Its methods neither raise nor wait; answers to a disconnected client are dropped."""

    @property
    def key(self) -> str:
        """One key for each connection; rates are counted by it."""
        ...

    @property
    def namespace(self) -> str:
        """The namespace of this client's ids: `""` for all WebSockets, a separate one for a stdio process."""
        ...

    def find_objection(self, request: inbound.PiRequest) -> str | None:
        """Returns the reason why the client's user may not do this, as it is sent on the wire, or None."""
        ...

    def respond(self, frame: bytes) -> None: ...

    def on_replay(self, command: str, session_id: str | None) -> None:
        """The client is about to get the first outcome again, without anything being done again."""
        ...


class BroadcastPort(Protocol):
    """Sends to every connection. Its methods neither raise nor wait."""

    def broadcast_lifecycle(self, frame: bytes) -> None: ...

    def broadcast(self, frame: bytes) -> None: ...


class Settlement(Struct, frozen=True):
    """The end of a command, as one durable addition to its session."""

    session_id: str
    command: str
    advances: bool
    receipts: tuple[journal.Receipt, ...]


class OutcomeLedger(Protocol):
    def get_version(self, session_id: str) -> int | None:
        """Returns None when the session does not exist."""
        ...

    def measure_user_wait(self, session_id: str) -> float:
        """Returns the total seconds for which a question was open in this session. It only grows."""
        ...

    def is_run_durable(self, session_id: str) -> bool:
        """Returns whether the session's run continues after a restart."""
        ...

    def settle(self, settlement: Settlement) -> Awaitable[int | None]:
        """Returns the session's version once the outcome is durable, or None when the session has been deleted."""
        ...


class HandlerResult(Struct, frozen=True):
    """The result of a handler."""

    data: Any = UNSET
    rest: Awaitable["HandlerResult"] | None = None
    """The state has changed and the lane is released; the command ends when this awaitable does."""
    is_run: bool = False
    """The rest is a run, which has other limits: the command's timeout does not cover it."""
    session_id: str | None = None
    """The session that was created or loaded."""
    announcements: tuple[bytes, ...] = ()
    settled: bool = False
    """The handler has stored the receipts itself; there is nothing left to settle."""


Handler = Callable[[inbound.PiRequest, DispatchClient], HandlerResult | Awaitable[HandlerResult]]

Resolve = Callable[[str, str | None, dict[str, Any]], Awaitable[HandlerResult]]
"""Resolves the outcome of a command from its name, its session and the facts that it started with."""


class CommandAlreadyStarted(Exception):
    """Another pi server has started this very command, which may still be running."""

    def __init__(self, ended: Awaitable[HandlerResult]) -> None:
        super().__init__("begun before")
        self.ended = ended
