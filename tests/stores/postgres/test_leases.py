"""The leases' contract in memory and on PostgreSQL."""

import pytest

from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.stores.postgres.leases_memory import MemoryLeases
from switchtower.testing import lease_contract


class TestMemoryLeases(lease_contract.LeaseContract):
    @pytest.fixture
    def make_leases(self) -> lease_contract.MakeLeases:
        first = MemoryLeases()
        return lambda: MemoryLeases(beside=first)


class TestPostgresLeases(lease_contract.LeaseContract):
    @pytest.fixture
    def make_leases(self, dsn: str) -> lease_contract.MakeLeases:
        return lambda: PostgresLeases(dsn)
