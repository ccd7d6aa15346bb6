"""Every number that bounds the order of pi commands, with the original server's defaults. 0 is no limit where it says so."""

from msgspec import Struct


class DispatchLimits(Struct, frozen=True, kw_only=True):
    session_rate: int = 100
    """Commands a minute of one client to one session; 0 is no limit."""
    client_rate: int = 1_000
    """Commands a minute of one client in all; 0 is no limit."""
    in_flight: int = 10_000
    """Commands accepted and not finished, duplicates that wait among them."""
    read_timeout_s: float = 30.0
    """From `command_started`; 0 is none, here and for the others."""
    command_timeout_s: float = 300.0
    dependency_timeout_s: float = 30.0
    outcomes: int = 2_000
    """Kept in memory for each namespace, the newest."""
    outcome_bytes: int = 64 * 1024 * 1024
    """What the kept answers of one namespace may weigh together; the newest is kept whatever it weighs."""
    idempotency_keys: int = 10_000
    """Kept in memory for each namespace, the newest."""
    idempotency_ttl_s: float = 600.0
    receipt_ttl_s: float = 7 * 24 * 3_600.0
    """How long a stored receipt answers a repeated `id`."""
    namespaces: int = 256

    def get_timeout(self, command: str) -> float:
        """Interop, Timeouts: none for create_session, short for reads."""
        if command == "create_session":
            return 0.0
        return self.read_timeout_s if command.startswith(("get_", "list_")) else self.command_timeout_s
