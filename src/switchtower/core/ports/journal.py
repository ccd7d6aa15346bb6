"""The journal port: where everything that happened is kept. Stores implement it; nothing else writes.

The unit is the `Entry`: an event with its place, already encoded. What is stored is what replay reads and what live
subscribers are sent, so the two cannot differ. An append is atomic: entries, receipts, the session's card and its
snapshot become durable together or not at all, and only then does the caller hear of it.

Several processes may share one journal: a session is written only by its home, and `epoch` is the number of that tenure.
A store refuses an append of an older epoch with `errors.Fenced`.

The search port: finds words in everything that was said and done. Stores implement it, beside the journal.

The audit port: who decided what, from where and when, over all sessions. Stores implement it; it only reads."""

from collections.abc import Awaitable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from switchtower.core import events


class Entry(NamedTuple):
    """One journalled event. `data` is the event as compact JSON; `kind` says which."""

    seq: int
    ts_ms: int
    run_id: str | None
    kind: str
    data: bytes


class Receipt(Struct, frozen=True):
    """The stored outcome of a command with an identity. `scope` is the session's id, or `server`."""

    scope: str
    key: str
    fingerprint: str
    outcome: dict[str, Any]
    expires_at_ms: int
    replaces: bool = False
    """Takes the place of one with its identity; otherwise that must have expired."""


class WaitingPrompt(Struct, frozen=True):
    """What a program in a terminal waits for."""

    reason: str
    prompt: str


class ApprovalSummary(Struct, frozen=True):
    """An approval that waits, in short."""

    title: str
    tool: str
    summary: str


class UsageSummary(Struct, frozen=True):
    """What the models of a session took so far. `cost` is None where no price is known."""

    input_tokens: int
    output_tokens: int
    cost: float | None
    context_tokens: int
    context_window: int | None


class Card(Struct, frozen=True):
    """A session as the index lists it, without reading its events."""

    session_id: str
    state: events.SessionState
    created_at_ms: int
    updated_at_ms: int
    workspace: events.Workspace
    provider: str
    engine: str
    active_run_id: str | None = None
    pending_approval_id: str | None = None
    title: str = ""
    loaded: bool | None = None
    """Whether somebody asked to have it at hand (True), or said that nobody needs it (False)."""
    shells: int = 0
    """How many commands people are running in it."""
    messages: int = 0
    """How long its conversation is."""
    mode: str = ""
    tool: str = ""
    """The program in its terminal, when it has one."""
    ended_at_ms: int | None = None
    exit_code: int | None = None
    pid: int | None = None
    """Of the program, while it runs."""
    waits: WaitingPrompt | None = None
    question: ApprovalSummary | None = None
    host: str | None = None
    host_lost: bool = False
    model: str | None = None
    policy: str = ""
    sandbox: str = ""
    child_of: str | None = None
    """The session whose run has started it, and with which run it ends."""
    preset: str | None = None
    alias: str | None = None
    """The id that its first client chose for it."""
    spent: UsageSummary | None = None
    """None before the first call of a model."""
    accepted: dict[str, bool] = {}
    """The criteria of its last run, and whether each was met."""
    home: str | None = None
    """The node that decides for it, as the store knows when it is asked. Never stored with the card; None where there are no
    nodes, or nobody holds it."""


class Append(Struct):
    """One atomic addition to one session."""

    session_id: str
    epoch: int
    entries: Sequence[Entry]
    receipts: Sequence[Receipt] = ()
    card: Card | None = None
    """The session's new card, when it changed; always there with a session's first entry."""
    snapshot: bytes | None = None
    """The folded session as of the last entry, for a quick load."""


class StoredSession(Struct, frozen=True):
    """What a load starts from: the last snapshot (`None`: fold from seq 1), and where it stands."""

    session_id: str
    epoch: int
    snapshot_seq: int
    snapshot: bytes | None


class Retention(Struct, frozen=True):
    """How much of what is prunable stays: the newest `keep_entries` of a session, none older than `keep_ms`; 0 means no limit.

    Only entries at or below the session's snapshot go, so that a load never misses one; the newest entry always stays.
    """

    keep_entries: int
    keep_ms: int


NOTHING_KEPT: Mapping[str, int] = MappingProxyType({})


class Journal(Protocol):
    """One store of sessions. All methods are safe to call from the event loop and never block it for long."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def append(self, append: Append) -> Awaitable[None]:
        """Done when the addition is durable. After `errors.Fenced` or `errors.JournalUnavailable` nothing of it is stored."""
        ...

    async def load(self, session_id: str) -> StoredSession | None:
        """Where to start folding a session; `None` when there is no such session."""
        ...

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[Entry]:
        """The next retained entries in order: at least one while there is one, at most `limit`, and fewer when they are large."""
        ...

    async def read_back(self, session_id: str, before_seq: int, limit: int, *, streamed: bool = True) -> list[Entry]:
        """The last retained entries before a seq, in order. Bounded as `read` is. Not `streamed`: without what is prunable."""
        ...

    async def find_gap(self, session_id: str, after_seq: int) -> int | None:
        """The highest pruned seq beyond `after_seq`; `None` when a cursor at `after_seq` can be served without a hole."""
        ...

    async def find_receipt(self, scope: str, key: str, now_ms: int) -> Receipt | None:
        """The stored outcome for this identity, unless it has expired."""
        ...

    async def list_receipts(self, scope: str, limit: int, now_ms: int) -> list[Receipt]:
        """The newest of a scope that have not expired, newest first."""
        ...

    async def list_cards(
        self,
        *,
        limit: int,
        states: Sequence[events.SessionState] = (),
        session_id: str | None = None,
        loaded: bool = False,
    ) -> list[Card]:
        """Sessions, most recently updated first, optionally only those in the given states, with the given id, or loaded. The
        deleted ones only for who asks for that state."""
        ...

    async def delete(self, session_id: str) -> int:
        """Removes a session with all that there is of it; returns how many entries went. Nobody appends to it any more."""
        ...

    async def prune(
        self, retention: Retention, now_ms: int, session_id: str | None = None, *, keep_from: Mapping[str, int] = NOTHING_KEPT
    ) -> int:
        """Removes what retention allows, of one session or of all, and expired receipts; returns how many entries went.

        `keep_from` are seqs of sessions from which on nothing goes, whatever retention allows.
        """
        ...


class SearchHit(Struct, frozen=True):
    session_id: str
    seq: int
    ts_ms: int
    kind: str
    """Of the event that it was found in."""
    snippet: str
    """Some words around it."""


class Search(Protocol):
    async def find(self, text: str, limit: int, *, session_id: str | None = None) -> list[SearchHit]:
        """The best first, of all sessions or of one. All words must be there, in any order; the last may be a beginning, and
        words in double quotes stand together. Nothing is found for a text without words."""
        ...

    async def forget(self, session_id: str) -> None: ...

    async def close(self) -> None: ...


class NoSearch:
    """For who has none: finds nothing. Implements `Search`."""

    async def find(self, text: str, limit: int, *, session_id: str | None = None) -> list[SearchHit]:
        return []

    async def forget(self, session_id: str) -> None:
        return None

    async def close(self) -> None:
        return None


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
