"""The pending approvals of all sessions. Pure: `event_reader` requests them from the daemon.

An approval is added by a session's events, by a listing, or by both, and removed when either of them reports its end. An approval
that the user has deferred stays, but is not opened automatically again.
"""

from collections.abc import Iterable

from msgspec import Struct

from switchtower.client.frames import PushEvent
from switchtower.protocols.push import messages


class InboxItem(Struct, frozen=True):
    session_id: str
    run_id: str
    approval: messages.ApprovalRequired
    session_name: str = ""
    host: str = ""

    @property
    def id(self) -> str:
        return self.approval.approvalId

    def seconds_left(self, now_ms: float) -> float:
        return max(0.0, (self.approval.expiresAt - now_ms) / 1000)


class ApprovalInbox:
    def __init__(self) -> None:
        self._pending: dict[str, InboxItem] = {}
        self._deferred: set[str] = set()
        self._removed: dict[str, None] = {}
        """The ids of decided approvals, so that a listing older than the decision does not add them again. The oldest are
        forgotten."""

    @property
    def pending(self) -> list[InboxItem]:
        """The pending approvals, the first to expire first."""
        return sorted(self._pending.values(), key=lambda one: (one.approval.expiresAt, one.id))

    def __len__(self) -> int:
        return len(self._pending)

    def list_for_session(self, session_id: str) -> list[InboxItem]:
        return [one for one in self.pending if one.session_id == session_id]

    def get_next(self, session_id: str) -> InboxItem | None:
        """Returns the next approval of this session that the user has not deferred."""
        return next((one for one in self.list_for_session(session_id) if one.id not in self._deferred), None)

    def get(self, approval_id: str) -> InboxItem | None:
        return self._pending.get(approval_id)

    def add(self, pending: InboxItem) -> None:
        if pending.id not in self._removed:
            self._pending[pending.id] = pending

    def defer(self, approval_id: str) -> None:
        self._deferred.add(approval_id)

    def remove(self, approval_id: str) -> None:
        self._pending.pop(approval_id, None)
        self._deferred.discard(approval_id)
        self._removed[approval_id] = None
        while len(self._removed) > 1_000:
            del self._removed[next(iter(self._removed))]

    def on_event(self, event: PushEvent, *, session_name: str = "", host: str = "") -> None:
        match event.payload:
            case messages.ApprovalRequired() if event.run_id is not None:
                self.add(InboxItem(event.session_id, event.run_id, event.payload, session_name, host))
            case messages.ApprovalReceived(approval_id):
                self.remove(approval_id)
            case messages.Warn("APPROVAL_EXPIRED" | "APPROVAL_WITHDRAWN", _, str(approval_id)):
                self.remove(approval_id)
            case messages.RunComplete():
                for one in self.list_for_session(event.session_id):
                    self.remove(one.id)

    def apply_listing(
        self, listing: Iterable[InboxItem], *, sessions: Iterable[str] | None = None, but: str | None = None
    ) -> None:
        """Replaces the pending approvals with a listing of all sessions, or of the given `sessions`. An approval missing from the
        listing has ended, except in the session `but`, whose events are being followed."""
        listing = list(listing)
        asked = None if sessions is None else set(sessions)
        for one in list(self._pending.values()):
            was_asked = one.session_id != but and (asked is None or one.session_id in asked)
            if was_asked and all(one.id != other.id for other in listing):
                # The id is not recorded as decided: the listing may be older than the approval.
                del self._pending[one.id]
        for one in listing:
            self.add(one)
