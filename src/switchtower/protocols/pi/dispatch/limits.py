"""The limits, rates, command kinds and counts of the dispatcher. The limits have the original server's defaults, and 0 means no
limit where the attribute's description states it.

The rate limiter bounds the commands of one client in any sixty seconds, to one session and in all; the time is an argument. The
tables state which commands change a session, which may overtake and how long each may take. `get_metrics` reports the counts,
none of which grows with use.
"""

from collections import OrderedDict, deque
from typing import Literal

from msgspec import Struct

from switchtower.protocols.pi import inbound, messages


class DispatchLimits(Struct, frozen=True, kw_only=True):
    session_rate: int = 100
    """Commands a minute of one client to one session; 0 is no limit."""
    client_rate: int = 1_000
    """Commands a minute of one client in all; 0 is no limit."""
    in_flight: int = 10_000
    """Commands that are accepted and not finished, including waiting duplicates."""
    read_timeout_s: float = 30.0
    """Seconds from `command_started`; 0 is no timeout, here and for the others."""
    command_timeout_s: float = 300.0
    dependency_timeout_s: float = 30.0
    outcomes: int = 2_000
    """Outcomes kept in memory for each namespace, the newest."""
    outcome_bytes: int = 64 * 1024 * 1024
    """Total bytes of the answers kept for one namespace; the newest is kept whatever its size."""
    idempotency_keys: int = 10_000
    """Keys kept in memory for each namespace, the newest."""
    idempotency_ttl_s: float = 600.0
    receipt_ttl_s: float = 7 * 24 * 3_600.0
    """Seconds for which a stored receipt answers a repeated `id`."""
    namespaces: int = 256

    def get_timeout(self, command: str) -> float:
        """Interop, Timeouts: none for create_session, short for reads."""
        if command == "create_session":
            return 0.0
        return self.read_timeout_s if command.startswith(("get_", "list_")) else self.command_timeout_s


WINDOW_S = 60.0
SESSIONS_WATCHED = 1_000
"""Sessions of one client whose rate is counted. A client that invents more loses its oldest counts and costs no memory."""
CLIENTS_WATCHED = 10_000

CONTROL_SHARE = 10
"""Commands that stop or decide have a separate window: so many times the rate of all other commands."""

Exceeded = Literal["session", "client", "control"]


class _RateWindow:
    """The times of the newest commands, never more of them than the limit."""

    __slots__ = ("_limit", "_times")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._times: deque[float] = deque()

    def count(self, now: float) -> int:
        times = self._times
        while times and times[0] <= now - WINDOW_S:
            times.popleft()
        return len(times)

    def is_full(self, now: float) -> bool:
        times = self._times
        return len(times) >= self._limit and self.count(now) >= self._limit

    def add(self, now: float) -> None:
        if len(self._times) >= self._limit:
            self._times.popleft()
        self._times.append(now)


class _ClientRates:
    __slots__ = ("all", "control", "sessions")

    def __init__(self, limit: int) -> None:
        self.all = _RateWindow(limit)
        self.control = _RateWindow(limit * CONTROL_SHARE)
        self.sessions: OrderedDict[str, _RateWindow] = OrderedDict()


class RateLimiter:
    def __init__(self, limits: DispatchLimits) -> None:
        self._session_rate = limits.session_rate
        self._client_rate = limits.client_rate
        self._clients: OrderedDict[str, _ClientRates] = OrderedDict()

    def find_exceeded(self, client_key: str, session_id: str | None, now: float) -> Exceeded | None:
        """Returns the limit that one more command would exceed, or None; then the command is counted."""
        if not self._session_rate and not self._client_rate:
            return None
        client = self._get_client(client_key)
        session: _RateWindow | None = None
        if self._session_rate and session_id is not None:
            session = client.sessions.get(session_id)
            if session is not None and session.is_full(now):
                return "session"
        if self._client_rate:
            if client.all.is_full(now):
                return "client"
            client.all.add(now)
        if self._session_rate and session_id is not None:
            if session is None:
                session = client.sessions[session_id] = _RateWindow(self._session_rate)
                if len(client.sessions) > SESSIONS_WATCHED:
                    client.sessions.popitem(last=False)
            else:
                client.sessions.move_to_end(session_id)
            session.add(now)
        return None

    def find_control_exceeded(self, client_key: str, now: float) -> Exceeded | None:
        """Like `find_exceeded`, for a command that stops or decides. It is counted separately, so that a busy client can send
        it."""
        if not self._client_rate:
            return None
        control = self._get_client(client_key).control
        if control.is_full(now):
            return "control"
        control.add(now)
        return None

    def _get_client(self, client_key: str) -> _ClientRates:
        client = self._clients.get(client_key)
        if client is None:
            client = self._clients[client_key] = _ClientRates(self._client_rate)
            if len(self._clients) > CLIENTS_WATCHED:
                self._clients.popitem(last=False)
        return client

    def get_usage(self, client_key: str, now: float) -> int:
        client = self._clients.get(client_key)
        return client.all.count(now) if client is not None else 0

    def forget(self, client_key: str) -> None:
        self._clients.pop(client_key, None)


SERVER = frozenset(
    {
        "list_sessions",
        "create_session",
        "delete_session",
        "switch_session",
        "get_metrics",
        "health_check",
        "list_stored_sessions",
        "load_session",
    }
)
"""pi-server 17.1."""

READS = frozenset(name for name in messages.COMMANDS if name.startswith(("get_", "list_")))

MUTATING = frozenset(messages.COMMANDS) - READS - {"switch_session", "extension_ui_response", "health_check"}

VERSIONED = (frozenset(messages.COMMANDS) - SERVER) | {"create_session", "load_session", "switch_session"}
"""Commands whose success reports the session's version."""

ADVANCING = MUTATING - SERVER
"""pi-server 10: commands whose success advances the session's version."""

CONTROL = frozenset({"abort", "abort_compaction", "abort_retry", "abort_bash", "extension_ui_response", "delete_session"})
"""Commands that stop something or decide about it. A client that has used up its rate can still send them."""

OVERTAKING = READS | {
    "steer",
    "follow_up",
    "abort",
    "abort_compaction",
    "abort_retry",
    "abort_bash",
    "switch_session",
    "extension_ui_response",
    "health_check",
}


def get_versioned_session(command: str, named: str | None, made: str | None) -> str | None:
    """Returns the session whose version a command is about: the one that it names, or for create and load the one that it
    made."""
    return made if made is not None and command in SERVER else named


def can_overtake(request: inbound.PiRequest) -> bool:
    """Returns whether the command may overtake one that only waits. A prompt may when it names the behaviour for a running
    agent."""
    if request.type == "prompt":
        return isinstance(request.body, messages.Prompt) and request.body.streamingBehavior is not None
    return request.type in OVERTAKING


class RejectionCounts(Struct):
    """Field names are the wire's. Other modules count some of these: the module that refuses counts."""

    sessionLimit: int = 0
    messageSize: int = 0
    rateLimit: int = 0
    globalRateLimit: int = 0
    connectionLimit: int = 0
    inFlightLimit: int = 0
    conflict: int = 0
    validation: int = 0
    shutdown: int = 0


class RateLimitUsage(Struct, frozen=True):
    """The counts of the client that asks."""

    globalCount: int
    globalLimit: int
    sessionLimit: int


class ReplayCounts(Struct, frozen=True):
    inFlightCount: int
    maxInFlight: int
    outcomeCount: int
    maxOutcomes: int
    idempotencyCacheSize: int


class ExecutionCounts(Struct, frozen=True):
    laneCount: int


class StoreCounts(Struct, frozen=True):
    replay: ReplayCounts
    execution: ExecutionCounts


class DispatchMetrics(Struct, frozen=True):
    """The dispatcher's part of the answer; others add theirs."""

    totalCommandsExecuted: int
    commandsRejected: RejectionCounts
    rateLimitUsage: RateLimitUsage
    stores: StoreCounts
