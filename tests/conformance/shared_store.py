"""Runs the same daemons on PostgreSQL: with `TOWER_TESTS_STORE=postgres`, each one has a separate database."""

import atexit
import itertools
import os
import subprocess

import pytest

from switchtower.testing import postgres_server as servers

_numbers = itertools.count(1)
_server: servers.PostgresServer | None = None


def is_wanted() -> bool:
    return os.environ.get("TOWER_TESTS_STORE") == "postgres"


only_with_sqlite = pytest.mark.skipif(is_wanted(), reason="it looks into SQLite's files, or dials a hub")


def create_database() -> str:
    """Creates an empty database and returns its address."""
    global _server
    if _server is None:
        _server = servers.PostgresServer()
        atexit.register(_server.discard)
        _server.start()
    name = f"home_{next(_numbers)}"
    programs = servers.find_programs()
    assert programs is not None, servers.find_missing_reason()
    subprocess.run(
        [programs / "createdb", "-h", _server.folder, "-U", "postgres", name], check=True, capture_output=True, timeout=60
    )
    return _server.make_dsn(name)
