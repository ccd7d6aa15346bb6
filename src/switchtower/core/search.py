"""The search port: finds words in everything that was said and done. Stores implement it, beside the journal."""

from typing import Protocol

from msgspec import Struct


class SearchHit(Struct, frozen=True):
    session_id: str
    seq: int
    ts_ms: int
    kind: str
    """Of the event that it was found in."""
    snippet: str
    """Some words around it."""


class Search(Protocol):
    async def find(self, text: str, limit: int, *, session_id: str | None = None) -> list[SearchHit]:
        """The best first, of all sessions or of one. All words must be there, in any order; the last may be a beginning, and
        words in double quotes stand together. Nothing is found for a text without words."""
        ...

    async def forget(self, session_id: str) -> None: ...

    async def close(self) -> None: ...


class NoSearch:
    """For who has none: finds nothing. Implements `Search`."""

    async def find(self, text: str, limit: int, *, session_id: str | None = None) -> list[SearchHit]:
        return []

    async def forget(self, session_id: str) -> None:
        return None

    async def close(self) -> None:
        return None
