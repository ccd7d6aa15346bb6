"""The list of sessions: who is there, what state they are in, and which of them somebody looks for. Pure."""

from collections.abc import Iterable, Mapping
from pathlib import PurePath

from msgspec import Struct

from switchtower.protocols.push import extensions, listings, messages

WAITING = "awaiting_approval"
MARKS = {
    "running": "●",
    WAITING: "◆",
    "idle": "○",
    "completed": "✓",
    "failed": "✗",
    "cancelled": "◌",
}
"""How a state looks without colour."""
WORDS = {WAITING: "needs you", "completed": "done"}


class Row(Struct, frozen=True):
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
    def mark(self) -> str:
        return MARKS.get(self.state, "·")

    @property
    def word(self) -> str:
        return WORDS.get(self.state, self.state)

    @property
    def waits(self) -> bool:
        return self.state == WAITING

    @property
    def name(self) -> str:
        """What people call it: its title, else the end of its id."""
        return " ".join(self.title.split()) or f"…{self.session_id[-6:]}"

    @property
    def folder(self) -> str:
        return PurePath(self.root).name or self.root


def row(listed: messages.ListedSession, about: extensions.SessionInfo | None) -> Row:
    """What the list says, and what is known of the session besides. The list is newer, so its state counts."""
    if about is None:
        # A newer daemon may tell more in its list than the document asks for.
        title, model = getattr(listed, "title", None) or "", getattr(listed, "model", None) or ""
        return Row(listed.sessionId, listed.state, listed.updatedAt, listed.repo.rootPath, title, model)
    terminal = about.terminal
    return Row(
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


def row_of_card(card: listings.Card, *, node: str = "") -> Row:
    """`node` is what its home is called, where there are several."""
    return Row(
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


def ordered(rows: Iterable[Row]) -> list[Row]:
    """What waits for somebody first, then the latest."""
    return sorted(rows, key=lambda one: (not one.waits, -one.updated_ms, one.session_id))


def matching(rows: Iterable[Row], wanted: str) -> list[Row]:
    """Those that have every word of it somewhere."""
    words = wanted.casefold().split()
    return [one for one in rows if all(word in _searched(one) for word in words)]


def _searched(one: Row) -> str:
    return " ".join((one.title, one.session_id, one.state, one.word, one.root, one.model, one.host)).casefold()


def find(rows: Iterable[Row], wanted: str) -> Row | None:
    """A session by its id, the end of its id, or its title. None when it is none or several."""
    rows = list(rows)
    exact = [one for one in rows if wanted in (one.session_id, one.title)]
    ending = [one for one in rows if one.session_id.casefold().endswith(wanted.casefold())]
    for found in (exact, ending, matching(rows, wanted)):
        if len(found) == 1:
            return found[0]
    return None


def stale(
    listed: Iterable[messages.ListedSession], known: Mapping[str, tuple[int, extensions.SessionInfo]], *, most: int
) -> list[str]:
    """Whose details to ask for: those that changed since, the latest first."""
    wanted = [one for one in listed if one.sessionId not in known or known[one.sessionId][0] != one.updatedAt]
    return [one.sessionId for one in sorted(wanted, key=lambda one: -one.updatedAt)[:most]]
