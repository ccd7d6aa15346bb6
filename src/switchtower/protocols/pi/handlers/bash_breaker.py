"""The circuit breaker of bash commands (pi-server 21): when they time out repeatedly, they are refused for a while.

It counts for each session, and for all together; it does not know what the commands do.
"""

import enum
from collections.abc import Callable

from msgspec import Struct

from switchtower.protocols.pi import errors
from switchtower.protocols.pi.errors import PiCommandError

SESSION_TIMEOUTS = 5
"""Consecutive timeouts after which a session's commands are refused."""
GLOBAL_TIMEOUTS = 20
REST_S = 60.0


class BashCircuitState(enum.StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class _Circuit(Struct):
    limit: int
    timeouts: int = 0
    """Consecutive timeouts."""
    open_until: float = 0.0
    probing: bool = False

    def get_state(self, now: float) -> BashCircuitState:
        if self.timeouts < self.limit:
            return BashCircuitState.CLOSED
        return BashCircuitState.OPEN if now < self.open_until else BashCircuitState.HALF_OPEN

    def can_enter(self, now: float) -> bool:
        state = self.get_state(now)
        return state is BashCircuitState.CLOSED or (state is BashCircuitState.HALF_OPEN and not self.probing)

    def enter(self, now: float) -> None:
        self.probing = self.probing or self.get_state(now) is BashCircuitState.HALF_OPEN

    def record_timeout(self, now: float) -> None:
        self.timeouts += 1
        self.probing = False
        if self.timeouts >= self.limit:
            self.open_until = now + REST_S

    def close(self) -> None:
        self.timeouts, self.probing = 0, False


class BashBreakerMetrics(Struct, frozen=True):
    """Field names are the wire's."""

    enabled: bool
    globalState: str
    globalFailureCount: int
    sessionCount: int
    openSessionCount: int
    totalCalls: int
    totalTimeouts: int
    totalRejected: int


class BashBreaker:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = _Circuit(GLOBAL_TIMEOUTS)
        self._sessions: dict[str, _Circuit] = {}
        """Holds only sessions with timeouts: a success removes a session."""
        self._calls = self._timeouts = self._rejected = 0

    @property
    def is_open(self) -> bool:
        now = self._clock()
        return self._all.get_state(now) is BashCircuitState.OPEN or any(
            each.get_state(now) is BashCircuitState.OPEN for each in self._sessions.values()
        )

    def enter(self, session_id: str) -> None:
        now = self._clock()
        session = self._sessions.get(session_id)
        if not self._all.can_enter(now) or (session is not None and not session.can_enter(now)):
            self._rejected += 1
            raise PiCommandError(errors.BASH_CIRCUIT_OPEN)
        self._calls += 1
        self._all.enter(now)
        if session is not None:
            session.enter(now)

    def release(self, session_id: str) -> None:
        """The command was admitted and never ran: it counts neither as a success nor as a timeout."""
        self._all.probing = False
        if (session := self._sessions.get(session_id)) is not None:
            session.probing = False

    def record_success(self, session_id: str) -> None:
        self._all.close()
        self._sessions.pop(session_id, None)

    def record_timeout(self, session_id: str) -> None:
        now = self._clock()
        self._timeouts += 1
        self._all.record_timeout(now)
        self._sessions.setdefault(session_id, _Circuit(SESSION_TIMEOUTS)).record_timeout(now)

    def forget(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)

    def collect_metrics(self) -> BashBreakerMetrics:
        now = self._clock()
        return BashBreakerMetrics(
            enabled=True,
            globalState=self._all.get_state(now).value,
            globalFailureCount=self._all.timeouts,
            sessionCount=len(self._sessions),
            openSessionCount=sum(circuit.get_state(now) is BashCircuitState.OPEN for circuit in self._sessions.values()),
            totalCalls=self._calls,
            totalTimeouts=self._timeouts,
            totalRejected=self._rejected,
        )
