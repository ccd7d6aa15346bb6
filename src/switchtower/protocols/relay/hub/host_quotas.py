"""Limits on what one host may put into the hub's journal: sessions, open approvals, and messages and bytes a minute.

A host that sends too fast is read more slowly, so that nothing is lost and nothing piles up here. Excess sessions and approvals
are refused. Each kind of excess is logged once an hour.
"""

import logging
import time
from collections.abc import Callable

from msgspec import Struct

from switchtower.core import errors, events
from switchtower.core.ports import session_service

log = logging.getLogger(__name__)

MINUTE = 60.0
MAX_PAUSE = 5.0
"""The longest time, in seconds, for which a host is not read from."""
RECOUNT_SECONDS = 10.0
"""Seconds between two counts of the sessions while there are too many: some may have been deleted."""
MAX_COUNTED_CARDS = 100_000
_LOG_EVERY_SECONDS = 3_600.0


class HostQuotas(Struct, frozen=True, kw_only=True):
    """The limits of each host. 0 is no limit."""

    sessions: int = 0
    approvals: int = 0
    """Approvals that wait for a decision at a time."""
    messages_per_minute: int = 0
    bytes_per_minute: int = 0


UNLIMITED = HostQuotas()


class _RateAllowance:
    """An allowance per minute, saved up for at most one minute."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._left = float(per_minute)
        self._at = 0.0

    def take(self, amount: int, now: float) -> float:
        """Returns the seconds until the taken amount is covered."""
        if not self._per_minute:
            return 0.0
        per_second = self._per_minute / MINUTE
        self._left = min(self._left + (now - self._at) * per_second, float(self._per_minute)) if self._at else self._left
        self._at = now
        self._left -= amount
        return max(-self._left / per_second, 0.0)


class HostUsage:
    """One host's usage of its quotas, over all its connections."""

    def __init__(
        self, tower_: session_service.SessionService, host_id: str, quotas: HostQuotas, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._tower = tower_
        self._host_id = host_id
        self._quotas = quotas
        self._now = now
        self._messages = _RateAllowance(quotas.messages_per_minute)
        self._bytes = _RateAllowance(quotas.bytes_per_minute)
        self._sessions: set[str] | None = None
        """None until they are counted."""
        self._counted_at = 0.0
        self._open_approvals: set[tuple[str, str]] = set()
        """Session and approval id of each open approval."""
        self._logged: dict[str, float] = {}

    def compute_pause(self, frames: list[bytes]) -> float:
        """Returns the seconds for which the host is not read from after these frames."""
        now = self._now()
        pause = max(self._messages.take(len(frames), now), self._bytes.take(sum(map(len, frames)), now))
        if pause:
            self._log_hourly("rate", "sends more than it may in a minute; it is read more slowly")
        return min(pause, MAX_PAUSE)

    async def reserve_session(self, session_id: str) -> bool:
        """Returns whether the host may have one more session, which is then counted."""
        most = self._quotas.sessions
        if not most:
            return True
        now = self._now()
        if self._sessions is None or (len(self._sessions) >= most and now - self._counted_at >= RECOUNT_SECONDS):
            try:
                cards = await self._tower.list_cards(MAX_COUNTED_CARDS)
            except errors.CoreError:
                return False  # the count is unknown; the host sends it again
            self._sessions = {card.session_id for card in cards if card.host == self._host_id}
            self._counted_at = now
        if session_id not in self._sessions and len(self._sessions) >= most:
            self._log_hourly("sessions", f"has {most} sessions here; a new one is refused until some are deleted")
            return False
        self._sessions.add(session_id)
        return True

    def limit_approvals(self, session_id: str, reported: tuple[events.AnyEvent, ...]) -> tuple[events.AnyEvent, ...]:
        """Replaces excess approval requests by events that are only passed on. The end of an approval makes room for another."""
        kept: list[events.AnyEvent] = []
        for event in reported:
            if isinstance(event, events.ApprovalRequested) and not self._reserve_approval(session_id, event.approval.id):
                self._log_hourly("approvals", f"has {self._quotas.approvals} open questions; a new one is not asked here")
                if event.relayed is not None:
                    said = {"request_id": event.approval.id, "prompt": event.approval.title}
                    kept.append(events.HostEventReceived(type="run.permission_requested", data=said, relayed=event.relayed))
                continue
            if isinstance(event, events.ApprovalDecided | events.ApprovalExpired | events.ApprovalWithdrawn):
                self._open_approvals.discard((session_id, event.approval_id))
            elif isinstance(event, events.RunCompleted):
                self._open_approvals = {asked for asked in self._open_approvals if asked[0] != session_id}
            kept.append(event)
        return tuple(kept)

    def _reserve_approval(self, session_id: str, approval_id: str) -> bool:
        asked = (session_id, approval_id)
        if self._quotas.approvals and asked not in self._open_approvals and len(self._open_approvals) >= self._quotas.approvals:
            return False
        self._open_approvals.add(asked)
        return True

    def _log_hourly(self, kind: str, problem: str) -> None:
        now = self._now()
        if now - self._logged.get(kind, -_LOG_EVERY_SECONDS) >= _LOG_EVERY_SECONDS:
            self._logged[kind] = now
            log.warning("host %s %s", self._host_id, problem)
