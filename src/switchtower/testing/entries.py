"""Entries, cards, receipts and appends for tests of journals."""

from collections.abc import Sequence

from switchtower.core import codec, events
from switchtower.core.ports import journal

NOON = 1_760_000_000_000


def make_card(session_id: str, state: events.SessionState = events.SessionState.IDLE, updated_at_ms: int = NOON) -> journal.Card:
    return journal.Card(
        session_id=session_id,
        state=state,
        created_at_ms=NOON,
        updated_at_ms=updated_at_ms,
        workspace=events.Workspace(root="/work/space", branch="main"),
        provider="demo",
        engine="agent",
        title="Ünïcode, too",
    )


def make_delta(seq: int, ts_ms: int = NOON) -> journal.Entry:
    """Returns an entry that retention may remove."""
    return journal.Entry(seq, ts_ms, "run_1", events.TextDelta.kind, codec.encode(events.TextDelta(text=f"word {seq}")))


def make_warning(seq: int, ts_ms: int = NOON) -> journal.Entry:
    """Returns an entry that retention never removes."""
    data = codec.encode(events.WarningRaised(code="CODE", message=f"number {seq}"))
    return journal.Entry(seq, ts_ms, None, events.WarningRaised.kind, data)


def make_deltas(first: int, last: int, ts_ms: int = NOON) -> list[journal.Entry]:
    return [make_delta(seq, ts_ms) for seq in range(first, last + 1)]


def make_receipt(key: str, scope: str = "sess_a", *, expires_at_ms: int = NOON + 1_000, run: str = "run_1") -> journal.Receipt:
    return journal.Receipt(
        scope=scope, key=key, fingerprint=f"sha of {run}", outcome={"runId": run, "accepted": True}, expires_at_ms=expires_at_ms
    )


def make_append(
    session_id: str, entries: Sequence[journal.Entry], *, epoch: int = 1, snapshot: bytes | None = None
) -> journal.Append:
    """Returns an append with the card that a first entry needs."""
    is_first = bool(entries) and entries[0].seq == 1
    return journal.Append(
        session_id=session_id, epoch=epoch, entries=entries, card=make_card(session_id) if is_first else None, snapshot=snapshot
    )


async def read_seqs(store: journal.Journal, session_id: str) -> list[int]:
    return [entry.seq for entry in await store.read(session_id, 0, 100_000)]
