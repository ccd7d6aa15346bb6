"""Stores of both kinds with something in them."""

from tests.stores.postgres.conftest import dsn, emptied, empty_dsn, fresh_dsn, own_server, shared_server

__all__ = ["dsn", "emptied", "empty_dsn", "fresh_dsn", "own_server", "shared_server"]
