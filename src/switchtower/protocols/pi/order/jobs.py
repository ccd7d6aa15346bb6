"""A command under way, with all that hangs on it. Holds state; the conductor and the runner move it."""

import asyncio
import enum
from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from switchtower.protocols.pi.order import fingerprints, inbound, lifecycle, ports

if TYPE_CHECKING:
    from switchtower.protocols.pi.order.lanes import CommandLane


class CommandStage(enum.Enum):
    QUEUED = enum.auto()
    """In its lane, not begun."""
    WAITING = enum.auto()
    """Begun, and at the head of its lane until something else has happened."""
    RUNNING = enum.auto()
    """With its handler, or with what the handler left to do."""
    SETTLING = enum.auto()
    """Decided; the outcome is being stored. Nothing can change it any more."""
    FINISHED = enum.auto()


class DuplicateRequest(NamedTuple):
    """The same command asked again while the first is under way."""

    id: str | None
    client: ports.DispatchClient
    told: lifecycle.LifecycleData


class PendingCommand(Struct, eq=False, kw_only=True):
    """Something that will have an outcome. Commands of this process, and begun ones of the process before."""

    command: str
    namespace: str
    session_id: str | None
    fingerprint: fingerprints.Fingerprint | None
    """`None`: it has no identity."""
    ids: list[str] = []
    keys: list[str] = []
    lane: "CommandLane | None" = None
    """While it holds a place there."""
    followers: list[DuplicateRequest] = []
    dependents: dict["CommandJob", None] = {}
    stage: CommandStage = CommandStage.QUEUED


class CommandJob(PendingCommand, eq=False, kw_only=True):
    request: inbound.PiRequest
    client: ports.DispatchClient
    told: lifecycle.LifecycleData
    number: int = 0
    """Its place in the lane's order."""
    awaited: dict[str, PendingCommand] = {}
    """By id: the dependencies that have no outcome yet."""
    task: asyncio.Future[ports.HandlerResult] | None = None
    until: asyncio.Future[None] | None = None
    timer: asyncio.TimerHandle | None = None
    is_run: bool = False
    """It has started a run, which its timeout does not cover."""
    waited_before: float = 0.0
    """For how long people had been waited for in its session when its clock started."""
    waited: float = 0.0
    """For how long since then, as far as the clock has taken it into account."""
    dependency_timer: asyncio.TimerHandle | None = None
    made_session_id: str | None = None
    announcements: tuple[bytes, ...] = ()

    def cancel_timers(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.stop_waiting()

    def stop_waiting(self) -> None:
        if self.dependency_timer is not None:
            self.dependency_timer.cancel()
            self.dependency_timer = None
        if self.awaited:
            for pending in self.awaited.values():
                pending.dependents.pop(self, None)
            self.awaited = {}
        if self.until is not None:
            # What it waited for is another's; the wait is ours.
            self.until.cancel()
            self.until = None


async def wait_without_cancelling(until: Awaitable[None]) -> None:
    """Cancelling this wait leaves a future that others wait for alone."""
    if asyncio.isfuture(until):
        await asyncio.wait([until])
        if not until.cancelled():
            until.exception()  # how it ended is for others to see
    else:
        await until
