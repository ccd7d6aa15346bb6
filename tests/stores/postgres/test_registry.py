"""The registry's contract on PostgreSQL."""

import pytest
from tests.contracts import registry

from switchtower.stores.postgres.registry import PostgresRegistry


class TestPostgresRegistry(registry.RegistryContract):
    @pytest.fixture
    def make_registry(self, dsn: str) -> registry.MakeRegistry:
        return lambda: PostgresRegistry(dsn)
