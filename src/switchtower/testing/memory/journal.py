"""The journal in memory: the same contract, for tests and experiments. Its content ends with the process.

Closing keeps the content, so opening the same object again looks like a restart.
"""

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter

from switchtower.core import errors, events
from switchtower.core.ports import journal

_PRUNABLE = frozenset(kind for kind, event_type in events.BY_KIND.items() if event_type.prunable)
_seq_of = attrgetter("seq")


class _StoredSession:
    def __init__(self, number: int, card: journal.Card) -> None:
        self.number = number
        self.card = card
        self.epoch = 0
        self.entries: list[journal.Entry] = []
        self.head = 0
        self.snapshot_seq = 0
        self.snapshot: bytes | None = None
        self.pruned_through = 0


class MemoryJournal:
    """Implements `journal.Journal`."""

    def __init__(self) -> None:
        self._sessions: dict[str, _StoredSession] = {}
        self._receipts: dict[tuple[str, str], journal.Receipt] = {}
        self._is_open = False

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise errors.JournalUnavailable("it is not open")

    async def append(self, append: journal.Append) -> None:
        self._check_open()
        await asyncio.sleep(0)  # a disk takes a moment too, and callers must expect that other tasks run meanwhile
        session = self._sessions.get(append.session_id)
        self._check(append, session)
        if session is None:
            assert append.card is not None, "checked: a first append has a card"
            session = self._sessions[append.session_id] = _StoredSession(len(self._sessions), append.card)
        session.epoch = append.epoch
        if append.entries:
            session.entries += append.entries
            session.head = append.entries[-1].seq
        if append.card is not None:
            session.card = append.card
        if append.snapshot is not None:
            session.snapshot_seq, session.snapshot = session.head, append.snapshot
        for receipt in append.receipts:
            self._receipts.pop((receipt.scope, receipt.key), None)  # the newest comes last
            self._receipts[receipt.scope, receipt.key] = receipt

    def _check(self, append: journal.Append, session: _StoredSession | None) -> None:
        head = 0 if session is None else session.head
        if session is not None and append.epoch < session.epoch:
            raise errors.Fenced(f"`{append.session_id}` is in epoch {session.epoch}, not {append.epoch}")
        for expected, entry in enumerate(append.entries, head + 1):
            if entry.seq != expected:
                raise errors.Fenced(f"`{append.session_id}` goes on with seq {expected}, not {entry.seq}")
        if session is None and (not append.entries or append.card is None):
            raise ValueError(f"the first append to `{append.session_id}` needs an entry and a card")
        now_ms = append.entries[-1].ts_ms if append.entries else time.time_ns() // 1_000_000
        guarded = [(receipt.scope, receipt.key) for receipt in append.receipts if not receipt.replaces]
        if len(set(guarded)) < len(guarded) or any(self._find_live_receipt(*identity, now_ms) for identity in guarded):
            raise errors.Fenced("a receipt with the same identity is there already")

    def _find_live_receipt(self, scope: str, key: str, now_ms: int) -> journal.Receipt | None:
        receipt = self._receipts.get((scope, key))
        return receipt if receipt is not None and receipt.expires_at_ms > now_ms else None

    async def load(self, session_id: str) -> journal.StoredSession | None:
        self._check_open()
        session = self._sessions.get(session_id)
        if session is None:
            return None
        return journal.StoredSession(
            session_id=session_id, epoch=session.epoch, snapshot_seq=session.snapshot_seq, snapshot=session.snapshot
        )

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        self._check_open()
        session = self._sessions.get(session_id)
        if session is None:
            return []
        start = bisect_right(session.entries, after_seq, key=_seq_of)
        return session.entries[start : start + limit]

    async def read_back(self, session_id: str, before_seq: int, limit: int, *, streamed: bool = True) -> list[journal.Entry]:
        self._check_open()
        session = self._sessions.get(session_id)
        if session is None:
            return []
        before = session.entries[: bisect_left(session.entries, before_seq, key=_seq_of)]
        return [entry for entry in before if streamed or not events.BY_KIND[entry.kind].prunable][-limit:] if limit > 0 else []

    async def find_gap(self, session_id: str, after_seq: int) -> int | None:
        self._check_open()
        session = self._sessions.get(session_id)
        return session.pruned_through if session is not None and session.pruned_through > after_seq else None

    async def find_receipt(self, scope: str, key: str, now_ms: int) -> journal.Receipt | None:
        self._check_open()
        return self._find_live_receipt(scope, key, now_ms)

    async def list_receipts(self, scope: str, limit: int, now_ms: int) -> list[journal.Receipt]:
        self._check_open()
        live = [receipt for receipt in self._receipts.values() if receipt.scope == scope and receipt.expires_at_ms > now_ms]
        return live[::-1][:limit]

    async def list_cards(
        self,
        *,
        limit: int,
        states: Sequence[events.SessionState] = (),
        session_id: str | None = None,
        loaded: bool = False,
    ) -> list[journal.Card]:
        self._check_open()
        listed = [
            session
            for key, session in self._sessions.items()
            if (session.card.state in states if states else session.card.state is not events.SessionState.DELETED)
            and session_id in (None, key)
            and (not loaded or session.card.loaded)
        ]
        listed.sort(key=lambda session: (session.card.updated_at_ms, session.number), reverse=True)
        return [session.card for session in listed[:limit]]

    async def delete(self, session_id: str) -> int:
        self._check_open()
        for identity in [identity for identity in self._receipts if identity[0] == session_id]:
            del self._receipts[identity]
        session = self._sessions.pop(session_id, None)
        return len(session.entries) if session is not None else 0

    async def prune(
        self,
        retention: journal.Retention,
        now_ms: int,
        session_id: str | None = None,
        *,
        keep_from: Mapping[str, int] = journal.NOTHING_KEPT,
    ) -> int:
        self._check_open()
        for identity in [identity for identity in self._receipts if not self._find_live_receipt(*identity, now_ms)]:
            del self._receipts[identity]
        wanted = [(key, session) for key, session in self._sessions.items() if session_id in (None, key)]
        return sum(_prune(session, retention, now_ms, keep_from.get(key)) for key, session in wanted)


def _prune(session: _StoredSession, retention: journal.Retention, now_ms: int, keep_from: int | None) -> int:
    beyond_count = session.head - retention.keep_entries if retention.keep_entries else 0
    old_before_ms = now_ms - retention.keep_ms if retention.keep_ms else 0
    kept: list[journal.Entry] = []
    sweeping = True
    for entry in session.entries:
        prunable = entry.kind in _PRUNABLE
        within_reach = entry.seq <= session.snapshot_seq and entry.seq < min(session.head, keep_from or session.head)
        if prunable and not (within_reach and (entry.seq <= beyond_count or entry.ts_ms < old_before_ms)):
            sweeping = False
        if prunable and sweeping:
            session.pruned_through = entry.seq
        else:
            kept.append(entry)
    pruned = len(session.entries) - len(kept)
    session.entries = kept
    return pruned
