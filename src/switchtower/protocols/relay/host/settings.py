"""What a host knows about itself."""

from msgspec import Struct


class HostSettings(Struct, frozen=True, kw_only=True):
    host_id: str
    version: str
    default_cwd: str
    """Where a run starts whose folder nobody named."""
    approval_timeout_ms: int
    log_path: str | None
    server_base_url: str | None = None
    local_unix_socket: str | None = None
    journal_path: str | None = None
    node_id: str | None = None
    """Which of a tower's nodes this host is; None when it is alone."""
    bash_timeout_s: float = 120.0
    sandbox_network: bool = False
    """Whether commands in a sandbox reach the network."""
