"""The journal port: the durable log of every session, with its search and its audit. Stores implement it; nothing else writes.

The unit is the `Entry`: an event with its place, already encoded. Replay reads the same bytes that live subscribers are sent,
so the two cannot differ. An append is atomic: entries, receipts, the session's card and its snapshot become durable together
or not at all, and the caller continues only then.

Several processes may share one journal: only the node that owns a session writes it, and `epoch` is the number of that
ownership. A store refuses an append of an older epoch with `errors.Fenced`.
"""

from collections.abc import Awaitable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from switchtower.core import events


class Entry(NamedTuple):
    """One journalled event. `data` is the event as compact JSON; `kind` is the name of its type."""

    seq: int
    ts_ms: int
    run_id: str | None
    kind: str
    data: bytes


class Receipt(Struct, frozen=True):
    """The stored outcome of a command with an idempotency key. `scope` is the session's id, or `server`."""

    scope: str
    key: str
    fingerprint: str
    outcome: dict[str, Any]
    expires_at_ms: int
    replaces: bool = False
    """Replaces a receipt with the same scope and key; otherwise that one must have expired."""


class WaitingPrompt(Struct, frozen=True):
    """The input that a program in a terminal waits for."""

    reason: str
    prompt: str


class ApprovalSummary(Struct, frozen=True):
    """A pending approval in short."""

    title: str
    tool: str
    summary: str


class UsageSummary(Struct, frozen=True):
    """The model usage of a session so far. `cost` is None when no price is known."""

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
    """True when a client asked to keep it loaded, False when a client unloaded it."""
    shells: int = 0
    """The number of users' own commands that are running in it."""
    messages: int = 0
    """The number of messages in its conversation."""
    mode: str = ""
    tool: str = ""
    """The program in its terminal, when it has one."""
    ended_at_ms: int | None = None
    exit_code: int | None = None
    pid: int | None = None
    """The process id of the program while it runs."""
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
    """None before the first model call."""
    accepted: dict[str, bool] = {}
    """The criteria of its last run, and whether each was met."""
    home: str | None = None
    """The node that owns it, as the store knows when it is queried. It is never stored with the card; None without a cluster,
    or while no node owns the session.
    """


class Append(Struct):
    """One atomic addition to one session."""

    session_id: str
    epoch: int
    entries: Sequence[Entry]
    receipts: Sequence[Receipt] = ()
    card: Card | None = None
    """The session's new card, when it changed; a session's first entry always has one."""
    snapshot: bytes | None = None
    """The folded session as of the last entry, for a quick load."""


class StoredSession(Struct, frozen=True):
    """The starting point of a load: the last snapshot (`None`: fold from seq 1) and its seq."""

    session_id: str
    epoch: int
    snapshot_seq: int
    snapshot: bytes | None


class Retention(Struct, frozen=True):
    """The limits for prunable entries: the newest `keep_entries` of a session, none older than `keep_ms`; 0 means no limit.

    Only entries at or below the session's snapshot are removed, so that a load never misses one; the newest entry always
    stays.
    """

    keep_entries: int
    keep_ms: int


NOTHING_KEPT: Mapping[str, int] = MappingProxyType({})


class Journal(Protocol):
    """One store of sessions. All methods are safe to call from the event loop and never block it for long."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def append(self, append: Append) -> Awaitable[None]:
        """The result is set when the append is durable. After `errors.Fenced` or `errors.JournalUnavailable` nothing of it is
        stored.
        """
        ...

    async def load(self, session_id: str) -> StoredSession | None:
        """Returns where to start folding a session; `None` when the session does not exist."""
        ...

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[Entry]:
        """Returns the next retained entries in order: at least one if one exists, at most `limit`, and fewer when they are
        large.
        """
        ...

    async def read_back(self, session_id: str, before_seq: int, limit: int, *, streamed: bool = True) -> list[Entry]:
        """Returns the last retained entries before a seq, in order, bounded like `read`. Without `streamed`, prunable entries
        are left out.
        """
        ...

    async def find_gap(self, session_id: str, after_seq: int) -> int | None:
        """Returns the highest pruned seq beyond `after_seq`; `None` when a cursor at `after_seq` can be served without a gap."""
        ...

    async def find_receipt(self, scope: str, key: str, now_ms: int) -> Receipt | None:
        """Returns the stored outcome for this key, unless it has expired."""
        ...

    async def list_receipts(self, scope: str, limit: int, now_ms: int) -> list[Receipt]:
        """Returns the receipts of a scope that have not expired, newest first."""
        ...

    async def list_cards(
        self,
        *,
        limit: int,
        states: Sequence[events.SessionState] = (),
        session_id: str | None = None,
        loaded: bool = False,
    ) -> list[Card]:
        """Returns the most recently updated sessions first, optionally only those in the given states, with the given id, or
        loaded. Deleted ones are listed only when that state is requested.
        """
        ...

    async def delete(self, session_id: str) -> int:
        """Removes a session with all its data; returns the number of removed entries. No writer may append to it afterwards."""
        ...

    async def prune(
        self, retention: Retention, now_ms: int, session_id: str | None = None, *, keep_from: Mapping[str, int] = NOTHING_KEPT
    ) -> int:
        """Removes what retention allows, of one session or of all, and expired receipts; returns the number of removed
        entries.

        `keep_from` has seqs of sessions from which on nothing is removed, whatever retention allows.
        """
        ...


class SearchHit(Struct, frozen=True):
    session_id: str
    seq: int
    ts_ms: int
    kind: str
    """The kind of the event that contains the words."""
    snippet: str
    """Some words around the match."""


class Search(Protocol):
    async def find(self, text: str, limit: int, *, session_id: str | None = None) -> list[SearchHit]:
        """Returns the best hits first, of all sessions or of one. All words must occur, in any order; the last may be a
        prefix, and words in double quotes must be adjacent. A text without words finds nothing.
        """
        ...

    async def forget(self, session_id: str) -> None: ...

    async def close(self) -> None: ...


class NoSearch:
    """Finds nothing, for daemons without a search index. Implements `Search`."""

    async def find(self, text: str, limit: int, *, session_id: str | None = None) -> list[SearchHit]:
        return []

    async def forget(self, session_id: str) -> None:
        return None

    async def close(self) -> None:
        return None


class InvalidAuditCursor(ValueError):
    """The text is not a cursor that an audit page returned."""


class AuditNote(Struct, frozen=True, omit_defaults=True):
    """A security-relevant action that is not an event of a session: a login, a change of users, tokens or hosts."""

    kind: str
    ts_ms: int
    by: events.Actor
    subject: str = ""
    """The user, the token or the host that it concerns."""
    detail: str = ""


class AuditRecord(Struct, frozen=True, kw_only=True):
    place: str
    """The position in the whole log; the next page starts after the last record's."""
    ts_ms: int
    session_id: str
    seq: int
    session_title: str
    host: str | None
    approval_id: str
    verdict: str
    """A verdict of the core, or `expired`: no user decided."""
    by: str
    via: str
    client: str | None
    device: str | None = None
    """The access token's name and the user agent."""
    address: str | None = None
    """The machine that the decision came from."""
    comment: str | None
    rule: str | None
    """The rule that was added for the rest of the session, in short."""
    tool: str
    title: str
    summary: str
    claims: events.Claim | None = None
    """The user that another host, or the hub, names as the decider there; `by` is then that machine."""


class AuditPage(Struct, frozen=True):
    decisions: list[AuditRecord]
    next: str | None
    """The cursor of the next page; None at the end."""


class Audit(Protocol):
    async def read_page(self, limit: int, *, before: str | None = None, since_ms: int = 0) -> AuditPage:
        """Returns the newest records first. Raises `InvalidAuditCursor` and `errors.JournalUnavailable`."""
        ...
