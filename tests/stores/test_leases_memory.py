"""The leases' contract in memory."""

import pytest

from switchtower.core import journal
from switchtower.stores.leases_memory import MemoryLeases
from switchtower.testing import lease_contract


class TestMemoryLeases(lease_contract.LeaseContract):
    @pytest.fixture
    def cards(self) -> list[journal.Card]:
        return []

    @pytest.fixture
    def make_leases(self, cards: list[journal.Card]) -> lease_contract.MakeLeases:
        first = MemoryLeases(lambda: cards)
        return lambda: MemoryLeases(beside=first)

    @pytest.fixture
    def begin_session(self, cards: list[journal.Card]) -> lease_contract.BeginSession:
        async def begin(begun: journal.Card) -> None:
            cards.append(begun)

        return begin
