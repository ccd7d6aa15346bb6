"""What the conductor asks of others: who is answered, who is told, what is stored, and what a command does. No behaviour."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import UNSET, Struct

from switchtower.core.ports import journal
from switchtower.protocols.pi import inbound


class DispatchClient(Protocol):
    """One connection. Neither raises nor waits; when it has gone, answers are dropped."""

    @property
    def key(self) -> str:
        """One for each connection: what rates are counted by."""
        ...

    @property
    def namespace(self) -> str:
        """Whose ids these are: `""` for all WebSockets, its own for a stdio process."""
        ...

    def find_objection(self, request: inbound.PiRequest) -> str | None:
        """Why its user may not do this, in words for the wire; None: it may."""
        ...

    def respond(self, frame: bytes) -> None: ...

    def on_replay(self, command: str, session_id: str | None) -> None:
        """It is about to be answered as the first time, without anything being done again."""
        ...


class BroadcastPort(Protocol):
    """What every connection hears. Neither raises nor waits."""

    def broadcast_lifecycle(self, frame: bytes) -> None: ...

    def broadcast(self, frame: bytes) -> None: ...


class Settlement(Struct, frozen=True):
    """How a command ended, as one durable addition to its session."""

    session_id: str
    command: str
    advances: bool
    receipts: tuple[journal.Receipt, ...]


class OutcomeLedger(Protocol):
    def get_version(self, session_id: str) -> int | None:
        """`None`: no such session."""
        ...

    def measure_user_wait(self, session_id: str) -> float:
        """For how many seconds in all a question was open in this session. It only grows."""
        ...

    def is_run_durable(self, session_id: str) -> bool:
        """Whether the session's run continues after a restart."""
        ...

    def settle(self, settlement: Settlement) -> Awaitable[int | None]:
        """Returns the session's version once the outcome is durable, or None when the session has been deleted."""
        ...


class HandlerResult(Struct, frozen=True):
    """What a handler did."""

    data: Any = UNSET
    rest: Awaitable["HandlerResult"] | None = None
    """The state has changed and the lane goes on; the command ends when this does."""
    is_run: bool = False
    """The rest is a run, which has other limits: the command's timeout does not cover it."""
    session_id: str | None = None
    """The session that was made or loaded."""
    announcements: tuple[bytes, ...] = ()
    settled: bool = False
    """The handler has stored the receipts itself; there is nothing left to settle."""


Handler = Callable[[inbound.PiRequest, DispatchClient], HandlerResult | Awaitable[HandlerResult]]

Resolve = Callable[[str, str | None, dict[str, Any]], Awaitable[HandlerResult]]
"""Of a command, its session and the facts it began with: how it ended."""


class CommandAlreadyStarted(Exception):
    """Another house has begun this very command, which may still be under way."""

    def __init__(self, ended: Awaitable[HandlerResult]) -> None:
        super().__init__("begun before")
        self.ended = ended
