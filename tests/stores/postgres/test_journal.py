"""The journal's contract on PostgreSQL."""

import pytest

from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.testing import journal_contract


class TestPostgresJournal(journal_contract.JournalContract):
    @pytest.fixture
    def make_journal(self, dsn: str) -> journal_contract.MakeJournal:
        return lambda: PostgresJournal(dsn, node_id="node_a")
