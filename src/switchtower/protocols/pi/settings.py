"""The settings of the pi protocol. The daemon fills them in; the defaults are the original server's."""

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
    """The folder in which stored sessions are reported to be: `~/.pi/agent/sessions`, made absolute."""
    default_cwd: str = "/"
    """The working directory of a session whose client names none."""
    exports_dir: str = ""
    """The folder of exported pages whose request names no path."""
