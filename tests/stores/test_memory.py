import pytest
from tests.contracts import journal

from switchtower.testing.memory.journal import MemoryJournal


class TestMemoryJournal(journal.JournalContract):
    @pytest.fixture
    def make_journal(self) -> journal.MakeJournal:
        store = MemoryJournal()
        return lambda: store
