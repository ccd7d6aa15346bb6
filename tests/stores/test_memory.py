import pytest

from switchtower.stores.memory import MemoryJournal
from switchtower.testing import journal_contract


class TestMemoryJournal(journal_contract.JournalContract):
    @pytest.fixture
    def make_journal(self) -> journal_contract.MakeJournal:
        store = MemoryJournal()
        return lambda: store
