"""Other nodes hear of what was stored: once a batch, in few bytes, and after a silence that anything may have happened."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stores.postgres.wire import PostgresProxy

from switchtower.core import errors
from switchtower.stores.postgres import pool
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.pool import HeadsNotice, NotificationListener
from switchtower.testing.postgres_server import PostgresServer
from switchtower.testing.session_driver import make_append, make_delta, make_deltas


class NotificationCollector:
    def __init__(self) -> None:
        self.heard: list[HeadsNotice] = []
        self._news = asyncio.Event()

    def __call__(self, moved: HeadsNotice) -> None:
        self.heard.append(moved)
        self._news.set()

    async def wait_for_head(self, session_id: str, head: int) -> None:
        while not any((moved.heads or {}).get(session_id, (0, 0))[1] >= head for moved in self.heard):
            self._news.clear()
            await self._news.wait()

    async def wait_for_resync(self) -> None:
        while not any(moved.heads is None for moved in self.heard):
            self._news.clear()
            await self._news.wait()


@contextlib.asynccontextmanager
async def open_listener(dsn: str, node_id: str, ear: NotificationCollector, pulse: float = 5.0) -> AsyncIterator[None]:
    listener = NotificationListener(dsn, node_id, ear, pulse=pulse)
    await listener.open()
    yield
    await listener.close()


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresJournal]:
    store = PostgresJournal(dsn, node_id="node_a")
    await store.open()
    yield store
    await store.close()


async def test_another_node_hears_which_sessions_moved_from_where_and_how_far(dsn: str, store: PostgresJournal) -> None:
    here, there = NotificationCollector(), NotificationCollector()
    async with asyncio.timeout(60), open_listener(dsn, "node_a", here), open_listener(dsn, "node_b", there):
        await store.append(make_append("sess_a", make_deltas(1, 7)))
        await store.append(make_append("sess_\x00 é", make_deltas(1, 2)))
        await store.append(make_append("sess_a", make_deltas(8, 9)))
        await there.wait_for_head("sess_a", 9)
    assert there.heard == [
        HeadsNotice("node_a", {"sess_a": (0, 7)}),
        HeadsNotice("node_a", {"sess_\x00 é": (0, 2)}),
        HeadsNotice("node_a", {"sess_a": (7, 9)}),
    ]
    assert here.heard == [], "nobody is told what they did themselves"


async def test_a_batch_has_one_notice_however_much_is_in_it(dsn: str, store: PostgresJournal) -> None:
    ear = NotificationCollector()
    async with asyncio.timeout(60), open_listener(dsn, "node_b", ear):
        first = store.append(make_append("sess_0", [make_delta(1)]))
        await first
        many = [store.append(make_append(f"sess_{number}", make_deltas(1, 50))) for number in range(1, 41)]
        more = [store.append(make_append(f"sess_{number}", make_deltas(51, 60))) for number in range(1, 41)]
        await asyncio.gather(*many, *more)
        await store.append(make_append("sess_last", [make_delta(1)]))
        await ear.wait_for_head("sess_last", 1)
    assert [len(moved.heads or {}) for moved in ear.heard] == [1, 40, 1]
    assert set((ear.heard[1].heads or {}).values()) == {(0, 60)}


async def test_a_refused_append_has_no_notice(dsn: str, store: PostgresJournal) -> None:
    ear = NotificationCollector()
    async with asyncio.timeout(60), open_listener(dsn, "node_b", ear):
        await store.append(make_append("sess_a", [make_delta(1)], epoch=2))
        with pytest.raises(errors.Fenced):
            await store.append(make_append("sess_a", [make_delta(2)], epoch=1))
        await store.append(make_append("sess_b", [make_delta(1)]))
        await ear.wait_for_head("sess_b", 1)
    assert ear.heard == [HeadsNotice("node_a", {"sess_a": (0, 1)}), HeadsNotice("node_a", {"sess_b": (0, 1)})]


async def test_what_does_not_fit_a_notice_is_told_without_names(dsn: str, store: PostgresJournal) -> None:
    ear = NotificationCollector()
    async with asyncio.timeout(60), open_listener(dsn, "node_b", ear):
        await asyncio.gather(*(store.append(make_append(f"sess_{number:027d}", [make_delta(1)])) for number in range(400)))
        await ear.wait_for_resync()
    assert ear.heard == [HeadsNotice("node_a", None)]


async def test_a_journal_without_a_name_tells_nobody(dsn: str, store: PostgresJournal) -> None:
    ear, nameless = NotificationCollector(), PostgresJournal(dsn)
    await nameless.open()
    async with asyncio.timeout(60), open_listener(dsn, "node_b", ear):
        await nameless.append(make_append("sess_a", [make_delta(1)]))
        await store.append(make_append("sess_b", [make_delta(1)]))
        await ear.wait_for_head("sess_b", 1)
    assert [moved.heads for moved in ear.heard] == [{"sess_b": (0, 1)}]
    await nameless.close()


async def test_a_connection_that_is_cut_or_dead_is_made_anew_and_everything_may_have_moved(
    shared_server: PostgresServer, dsn: str, store: PostgresJournal
) -> None:
    with tempfile.TemporaryDirectory(prefix="tower-wire-") as folder:
        wire = PostgresProxy(Path(folder), shared_server.folder / ".s.PGSQL.5432")
        await wire.open()
        address = wire.make_dsn(dsn.partition("?")[0].rpartition("/")[2])
        for is_silent in (False, True):
            ear = NotificationCollector()
            async with asyncio.timeout(60), open_listener(address, "node_b", ear, pulse=0.05):
                if is_silent:
                    wire.swallows_answers = True  # nothing comes any more, and nobody says so
                    await wire.swallowed.wait()
                    wire.swallows_answers = False
                else:
                    wire.cut()
                await ear.wait_for_resync()
                await store.append(make_append(f"sess_{is_silent}", [make_delta(1)]))
                await ear.wait_for_head(f"sess_{is_silent}", 1)
        await wire.close()


SEQS = st.integers(0, 2**63 - 1)


@given(node_id=st.text(max_size=50), heads=st.dictionaries(st.text(max_size=60), st.tuples(SEQS, SEQS), max_size=200))
def test_a_notice_is_always_short_and_says_what_moved_or_that_anything_may_have(
    node_id: str, heads: dict[str, tuple[int, int]]
) -> None:
    if any("\ud800" <= sign <= "\udfff" for text in (node_id, *heads) for sign in text):
        return
    text = pool.encode_notice(node_id, heads)
    assert len(text.encode()) < 8_000
    assert "\0" not in text
    assert pool.decode_notice(text) in (HeadsNotice(node_id, heads), HeadsNotice(node_id, None))


@given(payload=st.text())
def test_a_notice_that_cannot_be_read_says_that_anything_may_have_moved(payload: str) -> None:
    moved = pool.decode_notice(payload)
    assert moved.heads is None or isinstance(moved.heads, dict)


@pytest.mark.parametrize("payload", ['{"node_id":"node_a","heads":{"sess_a":7}}', '{"node_id":"node_a","heads":{"sess_a":[7]}}'])
def test_a_notice_that_does_not_say_from_where_says_that_anything_may_have_moved(payload: str) -> None:
    """So nodes of the version before wrote them."""
    assert pool.decode_notice(payload).heads is None
