"""A batch of appends that are committed together: checked one by one, then written by one call of the database's
`append_batch`. An append that may not be stored is refused by `add` and leaves no trace in the batch. Nothing here writes to
the database.

Columns are encoded in the cheapest form: the library encodes an array element by element, which takes longer than the server
takes to parse the array from one text. Numbers, names and bytes are sent as one value per column. Everything is escaped or
checked here: whatever a value is, it stays one element.

The heads of sessions (epoch, whether a node holds it, last seq) are cached so that an append needs no lookup. The cache is
never authoritative: the database compares it with its own rows, and no append is refused before the heads were read again.
"""

import hashlib
import time
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import structs

from switchtower.core import errors
from switchtower.core.ports import journal
from switchtower.stores import packed_rows
from switchtower.stores.postgres import database, pool
from switchtower.stores.postgres.database import PostgresConnection


def encode_numbers(values: Sequence[int]) -> str:
    """Encodes for `::bigint[]`. Anything but a number of 64 bits raises `TypeError` or `OverflowError`."""
    return f"{{{repr(array('q', values).tolist())[1:-1]}}}"


def encode_texts(values: Sequence[str | None]) -> str:
    """Encodes for `::text[]`. None is NULL."""
    named = [value for value in values if value is not None]
    if not values:
        return "{}"
    if len(named) < len(values):
        return f"{{{','.join('NULL' if value is None else _quote(value) for value in values)}}}"
    joined = '","'.join(named)
    if "\\" in joined or joined.count('"') != 2 * (len(named) - 1):
        return f"{{{','.join(map(_quote, named))}}}"
    return f'{{"{joined}"}}'


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def join_pieces(values: Sequence[bytes]) -> tuple[bytes, str, str]:
    """Returns all values joined, the start of each (from 1 on), and the length of each."""
    sizes = list(map(len, values))
    return b"".join(values), encode_numbers(list(accumulate(sizes[:-1], initial=1)) if sizes else ()), encode_numbers(sizes)


def split_pieces_sql(whole: str, firsts: str, sizes: str) -> str:
    """Returns the SQL that turns the result of `join_pieces` into a `bytea[]` again, with the names of the three parameters."""
    return (
        f"ARRAY (SELECT substring({whole}::bytea, piece.first::integer, piece.size::integer)"  # noqa: S608 - names of parameters
        f" FROM unnest({firsts}::text::bigint[], {sizes}::text::bigint[]) WITH ORDINALITY AS piece (first, size, place)"
        " ORDER BY piece.place)"
    )


_LIMIT = 16_384


class PostgresSessionHead:
    __slots__ = ("epoch", "head", "held")

    def __init__(self, epoch: int, head: int, *, held: bool) -> None:
        self.epoch = epoch
        self.head = head
        self.held = held

    def can_append(self, epoch: int) -> bool:
        """A session that a node holds is written only in the epoch of its lease; one that no node holds also in a newer epoch."""
        return epoch == self.epoch or (not self.held and epoch > self.epoch)


class PostgresSessionHeadsCache:
    def __init__(self) -> None:
        self._by_session: dict[str, PostgresSessionHead] = {}

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._by_session

    def find(self, session_id: str) -> PostgresSessionHead | None:
        return self._by_session.get(session_id)

    def remember(self, session_id: str, head: PostgresSessionHead) -> None:
        self._by_session[session_id] = head

    def forget(self, session_ids: Iterable[str]) -> None:
        for session_id in session_ids:
            self._by_session.pop(session_id, None)

    def trim(self) -> None:
        while len(self._by_session) > _LIMIT:
            del self._by_session[next(iter(self._by_session))]

    async def load(self, connection: PostgresConnection, session_ids: Iterable[str]) -> None:
        wanted = {database.escape_nul(session_id): session_id for session_id in session_ids}
        rows = await connection.fetch(
            "SELECT session_id, epoch, head, node_id IS NOT NULL FROM homes WHERE session_id = ANY ($1)", list(wanted)
        )
        self.forget(wanted.values())
        for stored_id, epoch, head, held in rows:
            self._by_session[wanted[stored_id]] = PostgresSessionHead(epoch, head, held=held)


MOST_BYTES = 4_194_304
MOST_ROWS = 512
"""Enough to make the commit cheap; with a smaller batch, its appends are confirmed while the next one is written."""

CALL = (
    "SELECT append_batch($1, $2, $3,"
    " $4::text::text[], $5::text::bigint[], $6::text::bigint[], $7::text::bigint[],"
    " $8::text::integer[], $9::text::bigint[], $10::text::integer[], $11::text::bigint[], $12::text::text[], $13::text::text[],"
    f" {split_pieces_sql('$14', '$15', '$16')},"
    f" {', '.join(f'${number}' for number in range(17, 35))})"
)
"""The columns with a value for each session or event are sent as encoded arrays; there are few cards, snapshots and receipts."""

_WIDTH = 1 + len(packed_rows.COLUMNS)
_encode = msgspec.json.Encoder().encode


class BatchFull(Exception):
    """The append goes into the next batch."""


class _SessionBatch:
    """The changes of one session in this batch."""

    __slots__ = ("before", "card", "epoch", "head", "place", "snapshot")

    def __init__(self, place: int, before: int, epoch: int) -> None:
        self.place = place
        self.before = self.head = before
        self.epoch = epoch
        self.card: tuple[Any, ...] | None = None
        self.snapshot: tuple[int, bytes] | None = None


class PostgresBatch:
    def __init__(self, heads: PostgresSessionHeadsCache) -> None:
        self._heads = heads
        self._steps: dict[str, _SessionBatch] = {}
        self._events: list[Any] = []
        self._bytes = 0
        self._receipts: dict[bytes, tuple[Any, ...]] = {}

    @property
    def session_ids(self) -> list[str]:
        return list(self._steps)

    def add(self, append: journal.Append, size: int) -> None:
        """Raises `BatchFull`, or the reason why the append is refused. `size` is its approximate number of bytes."""
        if self._steps and (self._bytes + size > MOST_BYTES or len(self._events) > MOST_ROWS * _WIDTH):
            raise BatchFull
        standing = self._heads.find(append.session_id)
        if standing is None or not standing.head:
            standing = self._begin_session(append, standing)
        elif append.epoch != standing.epoch and not standing.can_append(append.epoch):
            raise errors.Fenced(f"`{append.session_id}` is in epoch {standing.epoch}, not {append.epoch}")
        head = standing.head
        for entry in append.entries:
            head += 1
            if entry[0] != head:
                raise errors.Fenced(f"`{append.session_id}` goes on with seq {head}, not {entry[0]}")
        card = None if append.card is None else _make_card_values(append.card)
        receipts = self._make_receipt_rows(append) if append.receipts else ()
        step = self._steps.get(append.session_id) or _SessionBatch(len(self._steps) + 1, standing.head, append.epoch)
        before = len(self._events)
        try:
            packed_rows.pack(step.place, append.entries, self._events)
        except Exception:
            del self._events[before:]
            raise

        # From here on, nothing can fail.
        self._steps[append.session_id] = step
        self._heads.remember(append.session_id, standing)
        self._bytes += size
        standing.head = step.head = head
        standing.epoch = step.epoch = append.epoch
        if card is not None:
            step.card = card
        if append.snapshot is not None:
            step.snapshot = head, append.snapshot
        if receipts:
            self._receipts.update(receipts)

    def _make_receipt_rows(self, append: journal.Append) -> list[tuple[bytes, tuple[Any, ...]]]:
        receipts = [
            (hash_identity(receipt.scope, receipt.key), _make_receipt_values(receipt, append)) for receipt in append.receipts
        ]
        identities = {digest for digest, _ in receipts}
        if len(identities) < len(receipts):
            raise errors.Fenced("a receipt with the same identity is there already")
        if not self._receipts.keys().isdisjoint(identities):
            raise BatchFull  # one statement cannot write a row twice, and the earlier append may still be refused
        return receipts

    def _begin_session(self, append: journal.Append, head: PostgresSessionHead | None) -> PostgresSessionHead:
        """Starts a session that does not exist yet, or one that its owner has acquired but not started."""
        if head is not None and not head.can_append(append.epoch):
            raise errors.Fenced(f"`{append.session_id}` is in epoch {head.epoch}, not {append.epoch}")
        if append.entries and append.entries[0].seq != 1:
            raise errors.Fenced(f"`{append.session_id}` is not here, so it cannot go on with seq {append.entries[0].seq}")
        if not append.entries or append.card is None:
            raise ValueError(f"the first append to `{append.session_id}` needs an entry and a card")
        return head or PostgresSessionHead(append.epoch, 0, held=False)

    def build_arguments(self, node_id: str | None) -> list[Any]:
        """Returns the arguments for `CALL`, after the writer's three. Sessions and receipts are sorted, so that two nodes
        never deadlock.
        """
        steps = sorted((database.escape_nul(session_id), step) for session_id, step in self._steps.items())
        place_of = {step.place: number for number, (_, step) in enumerate(steps, 1)}
        cards = [(place_of[step.place], *step.card) for _, step in steps if step.card is not None]
        snapshots = [(place_of[step.place], *step.snapshot) for _, step in steps if step.snapshot is not None]
        receipts = [(identity, *values) for identity, values in sorted(self._receipts.items())]
        places, seqs, counts, times, runs, kinds, data = (self._events[start::_WIDTH] for start in range(_WIDTH))
        return [
            encode_texts([session_id for session_id, _ in steps]),
            encode_numbers([step.before for _, step in steps]),
            encode_numbers([step.head for _, step in steps]),
            encode_numbers([step.epoch for _, step in steps]),
            encode_numbers([place_of[place] for place in places]),
            encode_numbers(seqs),
            encode_numbers(counts),
            encode_numbers(times),
            encode_texts([None if run_id is None else database.escape_nul(run_id) for run_id in runs]),
            encode_texts(kinds),
            *join_pieces(data),
            *_transpose(cards, 6),
            *_transpose(snapshots, 3),
            *_transpose(receipts, 8),
            self._make_notice(node_id) if node_id else None,
        ]

    def _make_notice(self, node_id: str) -> str:
        return pool.encode_notice(node_id, {session_id: (step.before, step.head) for session_id, step in self._steps.items()})


def _transpose(rows: list[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [[row[column] for row in rows] for column in range(width)]


def _make_card_values(card: journal.Card) -> tuple[Any, ...]:
    # Only the store knows a session's owner: a card is stored without it.
    stored = card if card.home is None else structs.replace(card, home=None)
    return (card.state.value, card.created_at_ms, card.updated_at_ms, card.loaded is True, _encode(stored))


def hash_identity(scope: str, key: str) -> bytes:
    return hashlib.sha256(f"{len(scope)} {scope}{key}".encode()).digest()


def _make_receipt_values(receipt: journal.Receipt, append: journal.Append) -> tuple[Any, ...]:
    """A receipt replaces an expired one, as of the time of the append's own entries, or any if `replaces` is set."""
    recorded_at_ms = append.entries[-1].ts_ms if append.entries else time.time_ns() // 1_000_000
    told = (
        database.escape_nul(receipt.scope),
        database.escape_nul(receipt.key),
        database.escape_nul(receipt.fingerprint),
        _encode(receipt.outcome),
    )
    return (*told, recorded_at_ms, receipt.expires_at_ms, receipt.replaces)
