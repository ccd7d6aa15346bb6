"""The rows of the session list: their state, their order, and the filter. Pure.

The pending approvals of all sessions. Pure: `event_reader` requests them from the daemon.

An approval is added by a session's events, by a listing, or by both, and removed when either of them reports its end. An approval
that the user has deferred stays, but is not opened automatically again."""

from collections.abc import Iterable, Mapping
from pathlib import PurePath

from msgspec import Struct

from switchtower.client.frames import PushEvent
from switchtower.protocols.push import extension_messages, listing_messages, messages


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


WAITING = "awaiting_approval"
STATE_MARKS = {
    "running": "●",
    WAITING: "◆",
    "idle": "○",
    "completed": "✓",
    "failed": "✗",
    "cancelled": "◌",
}
"""The sign of each state, which shows it without colour."""
STATE_LABELS = {WAITING: "needs you", "completed": "done"}


class SessionListRow(Struct, frozen=True):
    session_id: str
    state: str
    updated_ms: int
    root: str
    title: str = ""
    model: str = ""
    host: str = ""
    """The host or node, set only if the session is on another host or there are several nodes."""
    is_program: bool = False
    asks: str = ""
    """The question that a program waits for."""

    @property
    def state_mark(self) -> str:
        return STATE_MARKS.get(self.state, "·")

    @property
    def state_label(self) -> str:
        return STATE_LABELS.get(self.state, self.state)

    @property
    def is_waiting(self) -> bool:
        return self.state == WAITING

    @property
    def name(self) -> str:
        """The title, or the end of the id for a session without one."""
        return " ".join(self.title.split()) or f"…{self.session_id[-6:]}"

    @property
    def folder(self) -> str:
        return PurePath(self.root).name or self.root


def make_row(listed: messages.ListedSession, about: extension_messages.SessionInfo | None) -> SessionListRow:
    """Combines a list entry with the session's details. The list is newer, so its state counts."""
    if about is None:
        # A newer daemon may send more fields in its list than push defines.
        title, model = getattr(listed, "title", None) or "", getattr(listed, "model", None) or ""
        return SessionListRow(listed.sessionId, listed.state, listed.updatedAt, listed.repo.rootPath, title, model)
    terminal = about.terminal
    return SessionListRow(
        session_id=listed.sessionId,
        state=listed.state,
        updated_ms=listed.updatedAt,
        root=listed.repo.rootPath,
        title=about.title,
        model=terminal.tool if terminal else about.model or about.provider,
        host=(terminal.host if terminal else None) or "",
        is_program=about.engine == "pty",
        asks=(terminal.waitsFor if terminal else None) or "",
    )


def make_row_from_card(card: listing_messages.Card, *, node: str = "") -> SessionListRow:
    """`node` is the name of the session's owner, empty with a single node."""
    return SessionListRow(
        session_id=card.sessionId,
        state=card.state,
        updated_ms=card.updatedAt,
        root=card.rootPath,
        title=card.title,
        model=card.tool or card.model or card.provider,
        host=f"{card.host} (lost)" if card.host and card.hostLost else card.host or node,
        is_program=card.engine == "pty",
        asks=card.waitsFor or "",
    )


def sort_rows(rows: Iterable[SessionListRow]) -> list[SessionListRow]:
    """Sorts sessions that wait for a user first, then by last use."""
    return sorted(rows, key=lambda one: (not one.is_waiting, -one.updated_ms, one.session_id))


def filter_rows(rows: Iterable[SessionListRow], wanted: str) -> list[SessionListRow]:
    """Returns the rows that contain every word of the filter."""
    words = wanted.casefold().split()
    return [one for one in rows if all(word in _get_search_text(one) for word in words)]


def _get_search_text(one: SessionListRow) -> str:
    return " ".join((one.title, one.session_id, one.state, one.state_label, one.root, one.model, one.host)).casefold()


def find_row(rows: Iterable[SessionListRow], wanted: str) -> SessionListRow | None:
    """Finds a session by its id, the end of its id, or its title. Returns None when no session or several match."""
    rows = list(rows)
    exact = [one for one in rows if wanted in (one.session_id, one.title)]
    ending = [one for one in rows if one.session_id.casefold().endswith(wanted.casefold())]
    for found in (exact, ending, filter_rows(rows, wanted)):
        if len(found) == 1:
            return found[0]
    return None


def find_stale(
    listed: Iterable[messages.ListedSession], known: Mapping[str, tuple[int, extension_messages.SessionInfo]], *, most: int
) -> list[str]:
    """Returns the sessions whose details have changed since they were fetched, the latest first."""
    wanted = [one for one in listed if one.sessionId not in known or known[one.sessionId][0] != one.updatedAt]
    return [one.sessionId for one in sorted(wanted, key=lambda one: -one.updatedAt)[:most]]
