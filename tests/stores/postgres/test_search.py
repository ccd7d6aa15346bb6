"""PostgreSQL's search keeps the contract, finds what the other store's finds, and nodes may search at once."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.contracts.search import MakeSearchFixture, SearchContract, SearchFixture, make_answer

from switchtower.stores.postgres import database, search
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.search import PostgresSearch
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.stores.sqlite.search import SqliteSearch

TEXTS = [
    "The quick brown-fox jumps; over_the lazy.dog 42 times",
    "naïve café ÉCOLE straße Ωmega 東京 x1y2",
    "quick_quick \x00 slow 'quoted' \\back: & | ! <-> (a)",
    "it's a test of e-mail me@example.org http://example.org/a?b=c",
]


class TestPostgresSearch(SearchContract):
    @pytest.fixture
    def make_search_fixture(self, dsn: str) -> MakeSearchFixture:
        return lambda: SearchFixture(PostgresJournal(dsn), PostgresSearch(dsn))

    async def test_nodes_that_search_at_once_read_everything_once(self, search_fixture: SearchFixture, dsn: str) -> None:
        others = [PostgresSearch(dsn) for _ in range(4)]
        for turn in range(1, 4):
            for number in range(5):
                await search_fixture.append_text(f"sess_{number}", *(make_answer(f"walrus {text}") for text in range(60)))
            for hits in await asyncio.gather(*(other.find("walrus", 1_000) for other in others)):
                assert len({(hit.session_id, hit.seq) for hit in hits}) == len(hits) == turn * 300
        await asyncio.gather(*(other.close() for other in others))

    async def test_both_stores_find_the_same(self, search_fixture: SearchFixture, tmp_path: Path) -> None:
        other = SearchFixture(
            SqliteJournal(tmp_path / "journal.db"), SqliteSearch(tmp_path / "search.db", tmp_path / "journal.db")
        )
        await other.journal.open()
        for store in (search_fixture, other):
            await store.append_text("sess_a", *map(make_answer, TEXTS))
        asked = {piece for text in TEXTS for piece in (*text.split(), text[4:15], f'"{text[:9]}"', text[:3], text.upper()[:12])}
        for text in sorted(
            asked | {"quick slow", "CAFE naive", "ecole", "東京", "東", "dog lazy", "me@example", "brown fox", "it s"}
        ):
            assert await search_fixture.find(text) == await other.find(text), text
        await other.search.close()
        await other.journal.close()


@pytest.mark.parametrize("text", ["", "   ", '"', "***", '""', "- + ^", "_ __"])
def test_a_text_without_words_asks_for_nothing(text: str) -> None:
    assert search.parse_query(text) is None


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=200), said=st.text(max_size=200))
@example(text="NEAR(a b) & ! | 'x':* <-> \\", said="''\\':1A &")
async def test_no_text_is_taken_for_a_command_of_the_index(dsn: str, text: str, said: str) -> None:
    connection = await database.connect(dsn)
    try:
        await connection.fetchval("SELECT $1::text::tsvector", search.build_tsvector(said))
        if question := search.parse_query(text):
            await connection.fetchval("SELECT $1::text::tsquery", question.tsquery)
            assert isinstance(question.make_snippet(said), str)
    finally:
        await connection.close()
