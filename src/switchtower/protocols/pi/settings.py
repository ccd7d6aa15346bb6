"""What of the pi protocol can be configured. The daemon fills it in; the defaults are the original server's."""

from msgspec import Struct


class PiSettings(Struct, frozen=True, kw_only=True):
    max_sessions: int = 100
    max_connections: int = 1_000
    session_rate: int = 100
    """Commands a minute that one client may send to one session; 0 is no limit, here and below."""
    client_rate: int = 1_000
    """Commands a minute that one client may send in all."""
    read_timeout_s: float = 30.0
    command_timeout_s: float = 300.0
    dependency_timeout_s: float = 30.0
    idempotency_minutes: float = 10.0
    sessions_dir: str = ""
    """Where stored sessions are said to lie: `~/.pi/agent/sessions`, made absolute."""
    default_cwd: str = "/"
    """Where a session works whose client does not say."""
    exports_dir: str = ""
    """Where exported pages are written when nobody says where."""
