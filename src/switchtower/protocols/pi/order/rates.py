"""How often one client may ask: so many commands in any sixty seconds, to one session and in all. Knows no clock."""

from collections import OrderedDict, deque
from typing import Literal

from switchtower.protocols.pi.order.limits import DispatchLimits

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
