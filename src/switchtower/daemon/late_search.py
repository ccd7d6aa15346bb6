"""The search as the runtime sees it: its room is loaded when somebody searches for the first time."""

from pathlib import Path
from typing import TYPE_CHECKING

from switchtower.core import search

if TYPE_CHECKING:
    from switchtower.stores.sqlite_search import SqliteSearch

NAME = "search.db"


class LazySearch:
    """Implements `search.Search`."""

    def __init__(self, journal_path: Path) -> None:
        self._journal_path = journal_path
        self._path = journal_path.with_name(NAME)
        self._search: SqliteSearch | None = None

    def _get(self) -> "SqliteSearch":
        if self._search is None:
            from switchtower.stores.sqlite_search import SqliteSearch

            self._search = SqliteSearch(self._path, self._journal_path)
        return self._search

    async def find(self, text: str, limit: int, *, session_id: str | None = None) -> list[search.SearchHit]:
        return await self._get().find(text, limit, session_id=session_id)

    async def forget(self, session_id: str) -> None:
        if self._search is not None or self._path.exists():
            await self._get().forget(session_id)

    async def close(self) -> None:
        if self._search is not None:
            await self._search.close()
