"""How much the runtime holds and how long it waits, in one place."""

from msgspec import Struct


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
