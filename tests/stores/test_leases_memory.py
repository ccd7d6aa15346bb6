"""The leases' contract in memory."""

import pytest
from tests.contracts import leases

from switchtower.core.ports import journal
from switchtower.testing.memory.leases import MemoryLeases


class TestMemoryLeases(leases.LeaseContract):
    @pytest.fixture
    def cards(self) -> list[journal.Card]:
        return []

    @pytest.fixture
    def make_leases(self, cards: list[journal.Card]) -> leases.MakeLeases:
        first = MemoryLeases(lambda: cards)
        return lambda: MemoryLeases(beside=first)

    @pytest.fixture
    def begin_session(self, cards: list[journal.Card]) -> leases.BeginSession:
        async def begin(begun: journal.Card) -> None:
            cards.append(begun)

        return begin
