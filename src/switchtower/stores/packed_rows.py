"""Packs streamed text into few rows: adjacent pieces of one message that were committed together share one.

A packed row's `seq` is that of its last entry, and its `data` is the entries' JSON, one per line (compact JSON contains no
line feed). Every other entry is a row by itself. A commit then costs one row and not a hundred, and so does reading it back.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, cast

from switchtower.core import events
from switchtower.core.ports import journal

PACKED = frozenset(kind for kind, event_type in events.BY_KIND.items() if event_type.prunable)
"""Only prunable kinds: there are many of them, and no reader looks up a single one."""

MOST_ENTRIES = 512
_MOST_BYTES = 65_536
_PAGE_BYTES = 2_097_152
"""The approximate size of one read, however large the entries are."""

COLUMNS = ("seq", "count", "ts_ms", "run_id", "kind", "data")
PackedRow = tuple[int, int, int, str | None, str, bytes]


def pack(sid: int, entries: Sequence[journal.Entry], values: list[Any]) -> None:
    """Appends the entries' rows to a flat list of values, each as (sid, *COLUMNS)."""
    strip: list[bytes] = []
    size = 0
    last_seq, strip_ts_ms, strip_run_id, strip_kind = 0, 0, None, ""
    for seq, ts_ms, run_id, kind, data in entries:
        if strip:
            if kind == strip_kind and ts_ms == strip_ts_ms and run_id == strip_run_id and size < _MOST_BYTES:
                strip.append(data)
                size += len(data)
                last_seq = seq
                if len(strip) < MOST_ENTRIES:
                    continue
            values += (sid, last_seq, len(strip), strip_ts_ms, strip_run_id, strip_kind, b"\n".join(strip))
            strip.clear()
            if last_seq == seq:
                continue
        if kind in PACKED:
            strip.append(data)
            size = len(data)
            last_seq, strip_ts_ms, strip_run_id, strip_kind = seq, ts_ms, run_id, kind
        else:
            values += (sid, seq, 1, ts_ms, run_id, kind, data)
    if strip:
        values += (sid, last_seq, len(strip), strip_ts_ms, strip_run_id, strip_kind, b"\n".join(strip))


def unpack(rows: Iterable[PackedRow], after_seq: int, limit: int) -> list[journal.Entry]:
    """Returns the entries of these rows after a cursor, up to `limit` or to a page's size. Reads no more rows than it needs."""
    entries: list[Any] = []
    size = 0
    for last_seq, count, ts_ms, run_id, kind, data in rows:
        size += len(data)
        if count == 1:
            entries.append(journal.Entry(last_seq, ts_ms, run_id, kind, data))
        else:
            first_seq = last_seq - count + 1
            pieces = data.split(b"\n")
            if after_seq >= first_seq:
                del pieces[: after_seq - first_seq + 1]
                first_seq = after_seq + 1
            # This does what `Entry._make` does, without leaving C for each entry.
            places = zip(range(first_seq, last_seq + 1), repeat(ts_ms), repeat(run_id), repeat(kind), pieces)
            entries += map(tuple.__new__, repeat(journal.Entry), places)
        if len(entries) >= limit or size >= _PAGE_BYTES:
            del entries[limit:]
            break
    return cast(list[journal.Entry], entries)


def unpack_back(rows: Iterable[PackedRow], before_seq: int, limit: int) -> list[journal.Entry]:
    """Returns the entries before a seq, from rows in descending order: up to `limit` or to a page's size, in ascending order."""
    pages: list[list[journal.Entry]] = []
    found = size = 0
    for row in rows:
        entries = [entry for entry in unpack([row], 0, MOST_ENTRIES) if entry.seq < before_seq]
        if entries:
            pages.append(entries)
            found += len(entries)
            size += len(row[-1])
        if found >= limit or size >= _PAGE_BYTES:
            break
    return [entry for page in reversed(pages) for entry in page][-limit:] if limit > 0 else []


def drop_first_entries(data: bytes, entries: int) -> bytes:
    """Returns a packed row's data without its first entries."""
    return data.split(b"\n", entries)[entries]
