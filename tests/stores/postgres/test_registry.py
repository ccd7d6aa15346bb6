"""The registry's contract on PostgreSQL."""

import pytest

from switchtower.stores.postgres.registry import PostgresRegistry
from switchtower.testing import registry_contract


class TestPostgresRegistry(registry_contract.RegistryContract):
    @pytest.fixture
    def make_registry(self, dsn: str) -> registry_contract.MakeRegistry:
        return lambda: PostgresRegistry(dsn)
