"""SQLite's search keeps the contract, and its file can be thrown away."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.search import MakeSearchFixture, SearchContract, SearchFixture, make_answer

from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.stores.sqlite.search import SqliteSearch, build_query


def open_search(folder: Path) -> SearchFixture:
    return SearchFixture(SqliteJournal(folder / "journal.db"), SqliteSearch(folder / "search.db", folder / "journal.db"))


class TestSqliteSearch(SearchContract):
    @pytest.fixture
    def make_search_fixture(self, tmp_path: Path) -> MakeSearchFixture:
        return lambda: open_search(tmp_path)

    async def test_a_broken_index_is_made_anew(self, search_fixture: SearchFixture, tmp_path: Path) -> None:
        await search_fixture.append_text("sess_a", make_answer("walrus"))
        assert await search_fixture.find("walrus") == [("sess_a", 1)]
        await search_fixture.search.close()
        (tmp_path / "search.db").write_bytes(b"rubbish" * 1_000)
        assert await search_fixture.find("walrus") == [("sess_a", 1)]
        assert (tmp_path / "search.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "   ", '"', "***", '""', "- + ^"])
def test_a_text_without_words_asks_for_nothing(text: str) -> None:
    assert build_query(text) is None


@given(text=st.text(max_size=200))
async def test_no_text_is_taken_for_a_command_of_the_index(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    search_fixture = open_search(tmp_path_factory.mktemp("search"))
    await search_fixture.journal.open()
    try:
        await search_fixture.append_text("sess_a", make_answer("walrus NEAR(a b) OR NOT text:x"))
        assert isinstance(await search_fixture.search.find(text, 5), list)
    finally:
        await search_fixture.search.close()
        await search_fixture.journal.close()
