"""Stores of both kinds with something in them."""

from tests.stores.postgres.conftest import dsn, emptied_databases, empty_dsn, fresh_dsn, dedicated_server, shared_server

__all__ = ["dsn", "emptied_databases", "empty_dsn", "fresh_dsn", "dedicated_server", "shared_server"]
