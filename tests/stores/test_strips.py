"""Entries in shared rows: whatever is packed comes out the same, from any cursor and in any page size."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from switchtower.core import events
from switchtower.core.codec import encode
from switchtower.core.ports import journal
from switchtower.stores import packed_rows
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.testing.session_driver import make_append, make_deltas

texts = st.text(max_size=8) | st.sampled_from(["\n", "\r\n", "\u2028", "\x1e", "a\nb"])


@st.composite
def logs(draw: st.DrawFn) -> list[journal.Entry]:
    made: list[journal.Entry] = []
    for _ in range(draw(st.integers(0, 40))):
        text = draw(texts)
        event: events.AnyEvent = draw(
            st.sampled_from([events.TextDelta(text), events.ThinkingDelta(text), events.WarningRaised(code="X", message=text)])
        )
        run_id = draw(st.sampled_from(["run_1", "run_2"]))
        made.append(journal.Entry(len(made) + 1, draw(st.integers(1, 2)), run_id, event.kind, encode(event)))
    return made


def _make_rows(values: list[Any]) -> list[packed_rows.PackedRow]:
    width = len(packed_rows.COLUMNS) + 1
    return [tuple(values[start + 1 : start + width]) for start in range(0, len(values), width)]  # type: ignore[misc]


@given(logs(), st.integers(0, 45), st.integers(1, 50))
def test_what_is_packed_is_unpacked_from_any_cursor(log: list[journal.Entry], after_seq: int, limit: int) -> None:
    values: list[Any] = []
    packed_rows.pack(7, log, values)
    rows = [row for row in _make_rows(values) if row[0] > after_seq]  # as the query has it
    assert packed_rows.unpack(rows, after_seq, limit) == log[after_seq : after_seq + limit]
    assert all(type(entry) is journal.Entry for entry in packed_rows.unpack(rows, after_seq, limit))


@given(st.lists(texts, min_size=2, max_size=20), st.data())
def test_a_beheaded_strip_has_the_rest(pieces: list[str], data: st.DataObject) -> None:
    gone = data.draw(st.integers(1, len(pieces) - 1))
    encoded = [encode(events.TextDelta(piece)) for piece in pieces]
    assert packed_rows.drop_first_entries(b"\n".join(encoded), gone) == b"\n".join(encoded[gone:])


def test_decisions_and_results_have_rows_of_their_own() -> None:
    log = [journal.Entry(seq, 1, "run_1", events.WarningRaised.kind, b"{}") for seq in (1, 2, 3)]
    values: list[Any] = []
    packed_rows.pack(1, log, values)
    assert [(row[0], row[1]) for row in _make_rows(values)] == [(1, 1), (2, 1), (3, 1)]


def test_large_entries_make_a_shorter_page() -> None:
    log = [journal.Entry(seq, 1, "run_1", events.ToolFinished.kind, b"x" * 500_000) for seq in range(1, 101)]
    values: list[Any] = []
    packed_rows.pack(1, log, values)
    page = packed_rows.unpack(_make_rows(values), 0, 500)
    assert 1 < len(page) < 10
    assert packed_rows.unpack(_make_rows(values)[len(page) :], len(page), 500)[0].seq == len(page) + 1


def test_a_strip_does_not_grow_without_bound() -> None:
    log = [journal.Entry(seq, 1, "run_1", events.TextDelta.kind, b'{"text":"' + b"x" * 1_000 + b'"}') for seq in range(1, 2_001)]
    values: list[Any] = []
    packed_rows.pack(1, log, values)
    rows = _make_rows(values)
    assert sum(row[1] for row in rows) == 2_000
    assert max(len(row[5]) for row in rows) < 100_000


async def test_retention_may_draw_its_line_through_a_strip(tmp_path: Path) -> None:
    store = SqliteJournal(tmp_path / "journal.db")
    await store.open()
    try:
        await store.append(make_append("sess_a", make_deltas(1, 101), snapshot=b"{}"))
        with sqlite3.connect(tmp_path / "journal.db") as connection:
            (largest,) = connection.execute("SELECT max(count) FROM events").fetchone()
            assert largest > 50, "the line must fall into a strip for this test to show anything"
        assert await store.prune(journal.Retention(keep_entries=20, keep_ms=0), now_ms=10**15) > 0
        kept = await store.read("sess_a", 0, 500)
        pruned_through = await store.find_gap("sess_a", 0)
        assert pruned_through is not None
        texts_kept = [entry for entry in kept if entry.kind == events.TextDelta.kind]
        assert [entry.seq for entry in texts_kept] == list(range(pruned_through + 1, kept[-1].seq + 1))
        assert len(texts_kept) == 20
        assert all(json.loads(entry.data)["text"] for entry in texts_kept)
    finally:
        await store.close()
