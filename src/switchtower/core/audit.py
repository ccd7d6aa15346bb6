"""The audit port: who decided what, from where and when, over all sessions. Stores implement it; it only reads."""

from typing import Protocol

from msgspec import Struct

from switchtower.core import events


class InvalidAuditCursor(ValueError):
    """Not a place that a page ended at."""


class AuditNote(Struct, frozen=True, omit_defaults=True):
    """Something that concerns security and is no event of a session: a login, a change of users, tokens or hosts."""

    kind: str
    ts_ms: int
    by: events.Actor
    subject: str = ""
    """The user, the token or the host that it is about."""
    detail: str = ""


class AuditRecord(Struct, frozen=True, kw_only=True):
    place: str
    """Where it stands in the whole log; the next page begins after the last one's."""
    ts_ms: int
    session_id: str
    seq: int
    session_title: str
    host: str | None
    approval_id: str
    verdict: str
    """A verdict of the core's, or `expired`: nobody decided."""
    by: str
    via: str
    client: str | None
    device: str | None = None
    """The access token's name and the user agent."""
    address: str | None = None
    """The machine that it came from."""
    comment: str | None
    rule: str | None
    """What was allowed for the rest of the session, in short."""
    tool: str
    title: str
    summary: str
    claims: events.Claim | None = None
    """Whom another host, or the hub, names as who decided there; `by` is then that machine."""


class AuditPage(Struct, frozen=True):
    decisions: list[AuditRecord]
    next: str | None
    """The place to go on from; None at the end."""


class Audit(Protocol):
    async def read_page(self, limit: int, *, before: str | None = None, since_ms: int = 0) -> AuditPage:
        """The newest first. Raises `BadPlace`, and `errors.JournalUnavailable`."""
        ...
