"""The audit's hash chain, and the records that are read from a journal's rows. Pure: the stores keep the links and find the
rows.

Each link holds the digest of one record and the hash of everything before it, so that changing, removing or reordering a
record changes every hash after it. A link of a session's event is written in the transaction of that event. It outlives the
session: when that is deleted, the link of an approval request keeps only its digest, and the link of a decision keeps the
decision.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from switchtower.core import codec, events
from switchtower.core.fold import summarize_approval
from switchtower.core.ports import journal
from switchtower.core.rules import mirrors

FIRST_HASH = bytes(32)
"""The hash before the first link."""

SESSIONS, ACCOUNTS = "sessions", "accounts"
"""The two chains: events of sessions, and changes of users, tokens and hosts."""

CHAINED = {"approval.requested": False, "approval.decided": True, "approval.expired": True, "session.deleted": True}
"""The kinds of events that are links, and whether the link keeps the event's data. The data of a request may be large, and is
removed with its session.
"""
DELETED_KIND = "session.deleted"


class AuditLink(NamedTuple):
    number: int
    ts_ms: int
    session_id: str
    """Empty for a record that is not an event of a session."""
    seq: int
    kind: str
    digest: bytes
    """SHA-256 of the record."""
    record: bytes | None
    """The record as JSON; None where only the digest is kept."""
    hash: bytes


def make_link(previous: bytes, number: int, ts_ms: int, session_id: str, seq: int, kind: str, data: bytes) -> AuditLink:
    """Returns the link behind the one whose hash is `previous`."""
    digest = hashlib.sha256(data).digest()
    record = data if CHAINED.get(kind, True) else None
    return AuditLink(
        number,
        ts_ms,
        session_id,
        seq,
        kind,
        digest,
        record,
        compute_link_hash(previous, number, ts_ms, session_id, seq, kind, digest),
    )


def compute_link_hash(previous: bytes, number: int, ts_ms: int, session_id: str, seq: int, kind: str, digest: bytes) -> bytes:
    """The name of the session comes last: it is the only part that may contain any character."""
    # The name is escaped so that PostgreSQL can hold it: a chain stays the same in another store.
    name = session_id.replace("\\", "\\\\").replace("\0", "\\0")
    about = f"{number}\n{ts_ms}\n{seq}\n{kind}\n{name}".encode(errors="surrogatepass")
    return hashlib.sha256(previous + digest + about).digest()


class ChainBreak(Struct, frozen=True):
    """The place where a chain is broken."""

    number: int
    what: str


class ChainReport(Struct):
    """The result of a check."""

    name: str
    """The name of the chain."""
    links: int = 0
    head: str = FIRST_HASH.hex()
    """The hash of the last link: store it elsewhere, and a later check can show that the chain still contains it."""
    deleted: int = 0
    """Links of sessions that were deleted: only the digest can be checked."""
    broken: ChainBreak | None = None
    """The first break."""
    heads: set[str] = set()
    """Those of the `wanted` heads that were found."""


class ChainVerifier:
    """Takes the links of one chain in order, up to the first break."""

    def __init__(self, name: str, wanted: frozenset[str] = frozenset()) -> None:
        """`wanted`: heads that were stored elsewhere."""
        self.found = ChainReport(name)
        self._wanted = wanted
        self._previous = FIRST_HASH

    def verify_links(self, links: Iterable[AuditLink]) -> Iterator[AuditLink]:
        """Yields the valid links, so that the caller can compare them with their events."""
        for link in links:
            if self.found.broken is not None:
                return
            if (problem := self._find_problem(link)) is not None:
                self.record_break(link.number, problem)
                return
            self._previous = link.hash
            self.found.links += 1
            self.found.head = link.hash.hex()
            if self.found.head in self._wanted:
                self.found.heads.add(self.found.head)
            yield link

    def record_break(self, number: int, what: str) -> None:
        if self.found.broken is None:
            self.found.broken = ChainBreak(number, what)

    def compare_event(self, link: AuditLink, data: bytes | None, deleted_at: int) -> None:
        """Compares a link with its event; None: the event is not in the journal. `deleted_at` is the number of the link that
        records the deletion of its session, or 0.
        """
        if link.number <= deleted_at:
            self.found.deleted += 1
        elif data is None:
            self.record_break(link.number, f"{link.kind} of {link.session_id} (seq {link.seq}) is gone from the journal")
        elif hashlib.sha256(data).digest() != link.digest:
            self.record_break(link.number, f"{link.kind} of {link.session_id} (seq {link.seq}) was changed in the journal")

    def record_stray(self, session_id: str, seq: int, kind: str) -> None:
        """Records an event that has no link."""
        self.record_break(self.found.links + 1, f"{kind} of {session_id} (seq {seq}) is in the journal and not in the chain")

    def verify_head(self, head: tuple[int, bytes] | None) -> None:
        """`head` is the stored number and hash of the last link."""
        if self.found.broken is not None:
            return
        stored = head or (0, FIRST_HASH)
        if stored != (self.found.links, self._previous):
            self.record_break(
                self.found.links + 1, f"the chain ends at {self.found.links}, and its stored head is at {stored[0]}"
            )

    def _find_problem(self, link: AuditLink) -> str | None:
        try:
            return self._compare_link(link)
        except (TypeError, AttributeError, ValueError):  # an SQLite file may hold any type in any column
            return "the link cannot be read"

    def _compare_link(self, link: AuditLink) -> str | None:
        if link.number != self.found.links + 1:
            return f"link {self.found.links + 1} is missing"
        if link.record is not None and hashlib.sha256(link.record).digest() != link.digest:
            return f"the record of {link.kind} was changed"
        if compute_link_hash(self._previous, *link[:6]) != link.hash:
            return f"the link of {link.kind} was changed, or what is before it was"
        return None


AuditCursor = tuple[int, int, int]
"""Time, session and seq: the order of the whole log."""

END_CURSOR: AuditCursor = (2**62, 2**62, 2**62)
MOST_LOOKED_BACK = 64
"""Requests of one session that are searched for the one that was decided: nearly always it is the last."""

DecidingEvent = events.ApprovalDecided | events.ApprovalExpired
_decode_card = msgspec.json.Decoder(journal.Card).decode


def encode_cursor(ts_ms: int, sid: int, seq: int) -> str:
    return f"{ts_ms}-{sid}-{seq}"


def decode_cursor(text: str) -> AuditCursor:
    parts = text.split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) <= 18 for part in parts):
        raise journal.InvalidAuditCursor(text[:64])
    ts_ms, sid, seq = map(int, parts)
    return ts_ms, sid, seq


def decode_decision(kind: str, data: bytes) -> DecidingEvent:
    event = codec.decode(kind, data)
    assert isinstance(event, DecidingEvent), "the query asks for no other"
    return event


def decode_request(data: bytes) -> events.Approval:
    event = codec.decode(events.ApprovalRequested.kind, data)
    assert isinstance(event, events.ApprovalRequested), "the query asks for no other"
    return event.approval


def make_record(
    at: AuditCursor, event: DecidingEvent, session_id: str, card: bytes, asked: events.Approval | None
) -> journal.AuditRecord:
    listed = _decode_card(card)
    decided: dict[str, Any] = {"verdict": "expired", "by": "", "via": "", "client": None, "comment": None, "rule": None}
    if isinstance(event, events.ApprovalDecided):
        by = event.by if listed.host is None else mirrors.attribute(event.by, listed.host)
        decided = {
            "verdict": event.verdict.value,
            "by": by.name,
            "via": by.via,
            "client": by.client,
            "device": by.device,
            "address": by.address,
            "claims": by.claims,
            "comment": event.comment,
            "rule": None if event.rule is None else _format_rule(event.rule),
        }
    return journal.AuditRecord(
        place=encode_cursor(*at),
        ts_ms=at[0],
        session_id=session_id,
        seq=at[2],
        session_title=listed.title,
        host=listed.host,
        approval_id=event.approval_id,
        tool="" if asked is None else summarize_approval(asked).tool,
        title="" if asked is None else asked.title,
        summary="" if asked is None else asked.summary,
        **decided,
    )


def _format_rule(rule: events.Rule) -> str:
    return " ".join(part for part in (rule.effect, rule.tool, rule.path, rule.command) if part)
