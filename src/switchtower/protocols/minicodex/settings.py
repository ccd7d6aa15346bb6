"""What of the MiniCodex protocol can be configured."""

from msgspec import Struct


class MiniCodexSettings(Struct, frozen=True, kw_only=True):
    heartbeat_s: float = 15.0
    replay_entries: int = 10_000
    """How many entries of a session are replayed at most; whoever missed more is told to fetch a snapshot."""
    default_cwd: str = "/"
    """Where a session works whose client does not say."""
