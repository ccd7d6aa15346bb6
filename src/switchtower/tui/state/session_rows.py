"""The list of sessions: who is there, what state they are in, and which of them somebody looks for. Pure."""

from collections.abc import Iterable, Mapping
from pathlib import PurePath

from msgspec import Struct

from switchtower.protocols.push import extension_messages, listing_messages, messages

WAITING = "awaiting_approval"
STATE_MARKS = {
    "running": "●",
    WAITING: "◆",
    "idle": "○",
    "completed": "✓",
    "failed": "✗",
    "cancelled": "◌",
}
"""How a state looks without colour."""
STATE_LABELS = {WAITING: "needs you", "completed": "done"}


class SessionListRow(Struct, frozen=True):
    session_id: str
    state: str
    updated_ms: int
    root: str
    title: str = ""
    model: str = ""
    host: str = ""
    """Where it lives, where that needs to be said: another host, or one of several nodes."""
    is_program: bool = False
    asks: str = ""
    """What a program waits for."""

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
        """What people call it: its title, else the end of its id."""
        return " ".join(self.title.split()) or f"…{self.session_id[-6:]}"

    @property
    def folder(self) -> str:
        return PurePath(self.root).name or self.root


def make_row(listed: messages.ListedSession, about: extension_messages.SessionInfo | None) -> SessionListRow:
    """What the list says, and what is known of the session besides. The list is newer, so its state counts."""
    if about is None:
        # A newer daemon may tell more in its list than the document asks for.
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
    """`node` is what its home is called, where there are several."""
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
    """What waits for somebody first, then the latest."""
    return sorted(rows, key=lambda one: (not one.is_waiting, -one.updated_ms, one.session_id))


def filter_rows(rows: Iterable[SessionListRow], wanted: str) -> list[SessionListRow]:
    """Those that have every word of it somewhere."""
    words = wanted.casefold().split()
    return [one for one in rows if all(word in _get_search_text(one) for word in words)]


def _get_search_text(one: SessionListRow) -> str:
    return " ".join((one.title, one.session_id, one.state, one.state_label, one.root, one.model, one.host)).casefold()


def find_row(rows: Iterable[SessionListRow], wanted: str) -> SessionListRow | None:
    """A session by its id, the end of its id, or its title. None when it is none or several."""
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
    """Whose details to ask for: those that changed since, the latest first."""
    wanted = [one for one in listed if one.sessionId not in known or known[one.sessionId][0] != one.updatedAt]
    return [one.sessionId for one in sorted(wanted, key=lambda one: -one.updatedAt)[:most]]
