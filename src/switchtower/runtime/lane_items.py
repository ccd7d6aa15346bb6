"""The items that a lane queues, and the limits of the runtime: how much it holds in memory and how long it waits."""

import asyncio
from collections.abc import Callable

from msgspec import Struct

from switchtower.core import commands, errors, events
from switchtower.core.ports import session_service
from switchtower.core.session import Session


class RuntimeLimits(Struct, frozen=True):
    waiting_commands: int = 1_000
    """Commands that may wait in one lane; further ones are refused with a retryable error."""
    uncommitted_events: int = 512
    """Events by which an engine may be ahead of the disk."""
    page: int = 500
    """Entries that a lagging subscriber is sent at once."""
    idle_lanes: int = 1_000
    """Unused sessions that are kept in memory."""
    snapshot_every: int = 5_000
    """Entries after which a session's snapshot is stored again while a run is active."""
    journal_retry: float = 1.0
    """Seconds to wait before the next attempt, after the journal could not store or read something."""
    retention_interval: float = 3_600.0
    """Seconds between two rounds of retention over all sessions."""
    stop_grace: float = 5.0
    """Seconds that a cancelled engine may clean up before its run is closed without it."""
    owner_timeout: float = 20.0
    """Seconds to wait for a session's owner while it cannot be determined or reached."""
    follow_interval: float = 5.0
    """Seconds between two reads of what other nodes may have stored without a notification."""


class QueuedCommand(Struct):
    command: commands.AnyCommand
    done: session_service.OutcomeCallback
    is_internal: bool = False
    """The command comes from this node's own engines, timers or recovery, which act only on sessions that this node owns."""
    is_forwarded: bool = False
    """The command comes from another node, which believes that this node is the owner: it is not forwarded again."""


class AttachRequest(Struct):
    after_seq: int
    subscriber: session_service.Subscriber
    admit: Callable[[Session], None]
    done: Callable[[session_service.Attachment | errors.CoreError], None]


class Barrier(Struct):
    """`reached` is resolved when everything before it is committed."""

    reached: asyncio.Future[None]


class SessionRead(Struct):
    """Reads the session at the point where everything before is committed and nothing after is decided."""

    seen: asyncio.Future[Session]


RunProgress = tuple[str, events.AnyEvent]
"""An event of a run, emitted by its engine. It is a bare tuple, because nearly all traffic is this."""

LaneItem = QueuedCommand | AttachRequest | Barrier | SessionRead | RunProgress

PendingResponse = tuple[session_service.OutcomeCallback, session_service.SubmitOutcome | errors.CoreError]
