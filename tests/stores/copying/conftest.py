"""Stores of both kinds with something in them."""

from tests.stores.postgres.conftest import dedicated_server, dsn, emptied_databases, empty_dsn, fresh_dsn, shared_server

__all__ = ["dedicated_server", "dsn", "emptied_databases", "empty_dsn", "fresh_dsn", "shared_server"]
