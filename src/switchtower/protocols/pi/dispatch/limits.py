"""Every number that bounds the order of pi commands, with the original server's defaults. 0 is no limit where it says so.

How often one client may ask: so many commands in any sixty seconds, to one session and in all. Knows no clock.

What kind of command each type is: what it changes, whom it may pass, how long it may take. Tables; nothing happens here.

What `get_metrics` tells of the order of commands: counts, and nothing that grows with use."""

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


WINDOW_S = 60.0
SESSIONS_WATCHED = 1_000
"""Of one client. One that invents more loses the counts of those it has left longest alone, not our memory."""
CLIENTS_WATCHED = 10_000

CONTROL_SHARE = 10
"""Commands that stop or decide have a separate window: so many times what a client may send of all others."""

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
        """Which limit one more command would break; `None`: none, and this one is counted."""
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
        """The same for a command that stops or decides. It is counted with nothing else, so that a busy client can do it."""
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
"""Whose success tells the session's version."""

ADVANCING = MUTATING - SERVER
"""pi-server 10: whose success moves the session's version on."""

CONTROL = frozenset({"abort", "abort_compaction", "abort_retry", "abort_bash", "extension_ui_response", "delete_session"})
"""What stops something or decides about it. A client that has used up its rate can still do this."""

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
    """Whose version a command is about: the session that it names, or for create and load the one that it made."""
    return made if made is not None and command in SERVER else named


def can_overtake(request: inbound.PiRequest) -> bool:
    """May it overtake a command that only waits? A prompt may when it says what to do with a running agent."""
    if request.type == "prompt":
        return isinstance(request.body, messages.Prompt) and request.body.streamingBehavior is not None
    return request.type in OVERTAKING


class RejectionCounts(Struct):
    """Field names are the wire's. Some are counted by other rooms: whoever refuses, counts."""

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
    """Of the client that asks."""

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
    """The conductor's part of the answer; others add theirs."""

    totalCommandsExecuted: int
    commandsRejected: RejectionCounts
    rateLimitUsage: RateLimitUsage
    stores: StoreCounts
