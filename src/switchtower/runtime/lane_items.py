"""How much the runtime holds and how long it waits, in one place."""

import asyncio
from collections.abc import Callable

from msgspec import Struct

from switchtower.core import commands, errors, events
from switchtower.core.ports import session_service
from switchtower.core.session import Session


class RuntimeLimits(Struct, frozen=True):
    waiting_commands: int = 1_000
    """Requests that may wait in one lane; further ones are refused and may be tried again."""
    uncommitted_events: int = 512
    """Events that an engine may be ahead of the disk."""
    page: int = 500
    """Entries that a subscriber who has fallen behind is sent at once."""
    idle_lanes: int = 1_000
    """Sessions kept in memory that nobody uses."""
    snapshot_every: int = 5_000
    """Entries after which a session's fold is stored again while a run goes on."""
    journal_retry: float = 1.0
    """Seconds that a journal which could not store or read something is left alone."""
    retention_interval: float = 3_600.0
    """Seconds between two rounds of retention over all sessions."""
    stop_grace: float = 5.0
    """Seconds that a cancelled engine may clean up before its run is closed without it."""
    owner_timeout: float = 20.0
    """Seconds that a session's home is waited for, while no node can be asked about it."""
    follow_interval: float = 5.0
    """Seconds between two looks at what other nodes may have stored without our hearing of it."""


class QueuedCommand(Struct):
    command: commands.AnyCommand
    done: session_service.OutcomeCallback
    is_internal: bool = False
    """Of this node's own engines, timers and recovery, which speak only for sessions whose home is here."""
    is_forwarded: bool = False
    """Another node asks, in the belief that the home is here: it is not sent on."""


class AttachRequest(Struct):
    after_seq: int
    subscriber: session_service.Subscriber
    admit: Callable[[Session], None]
    done: Callable[[session_service.Attachment | errors.CoreError], None]


class Barrier(Struct):
    """Reached when everything before it is committed."""

    reached: asyncio.Future[None]


class SessionRead(Struct):
    """The session as it is when everything before it is committed, and nothing after it is decided."""

    seen: asyncio.Future[Session]


RunProgress = tuple[str, events.AnyEvent]
"""An event of a run, by its engine. A bare tuple: nearly all traffic is this."""

LaneItem = QueuedCommand | AttachRequest | Barrier | SessionRead | RunProgress

PendingResponse = tuple[session_service.OutcomeCallback, session_service.SubmitOutcome | errors.CoreError]
