"""`tower doctor` on a home whose store is a PostgreSQL: what is well, what is not, and never a password."""

import asyncio
from typing import Any

import pytest
from tests.cli.inside import InProcessCommand

from switchtower.cli.doctor import services
from switchtower.stores.postgres import database, inspection

PARTS = ("store", "store's version", "store's schema", "store's disk", "store's room", "store's clock")


def run_checks(inside: InProcessCommand, dsn: str) -> dict[str, dict[str, Any]]:
    inside.monkeypatch.setenv("TOWER_STORE", dsn)
    ended = inside("doctor", "--json")
    assert b":secret" not in ended.stdout, "the password of a DSN"
    return {check["name"]: check for check in ended.json["checks"]}


def execute_sql(dsn: str, query: str) -> None:
    async def run() -> None:
        connection = await database.connect(dsn)
        await connection.execute(query)
        await connection.close()

    asyncio.run(run())


def test_a_database_that_is_well_is_called_so(in_process: InProcessCommand, dsn: str) -> None:
    found = run_checks(in_process, dsn)

    assert {name: found[name]["status"] for name in PARTS} == dict.fromkeys(PARTS, "ok")
    assert "no node is alive" in found["store"]["detail"]
    assert found["store's schema"]["detail"] == f"version {max(database.load_scripts())}"
    assert "journal" not in found
    assert "registry" not in found


def test_a_database_without_a_store_is_told_so(in_process: InProcessCommand, empty_dsn: str) -> None:
    assert run_checks(in_process, empty_dsn)["store's schema"]["detail"] == "not there yet; the first node makes it"


def test_a_database_of_a_newer_program_is_a_warning(in_process: InProcessCommand, fresh_dsn: str) -> None:
    execute_sql(fresh_dsn, "INSERT INTO migrations (version, at) VALUES (9999, now())")
    assert run_checks(in_process, fresh_dsn)["store's schema"]["status"] == "warn"


@pytest.mark.parametrize("dsn", ["postgresql://ann:secret@127.0.0.1:1/x", "postgresql://ann:secret@[/x"])
def test_a_database_that_is_away_fails_without_its_password(in_process: InProcessCommand, dsn: str) -> None:
    found = run_checks(in_process, dsn)
    assert found["store"]["status"] == "fail"
    assert found["store"]["remedy"]


WELL: dict[str, Any] = {
    "version": "16.1",
    "version_number": 160_001,
    "schema": max(database.load_scripts()),
    "settings": {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "synchronous_standby_names": "",
        "server_encoding": "UTF8",
    },
    "most_connections": 97,
    "used_connections": 5,
    "is_standby": False,
    "may_create": True,
    "clock_ahead_ms": 3,
    "nodes": [],
    "bytes": 9_000_000,
}


@pytest.mark.parametrize(
    ("name", "status", "changed"),
    [
        ("store", "fail", {"is_standby": True}),
        ("store's version", "fail", {"version": "13.9", "version_number": 130_009}),
        ("store's version", "fail", {"settings": {**WELL["settings"], "server_encoding": "SQL_ASCII"}}),
        ("store's schema", "fail", {"schema": 0, "may_create": False}),
        ("store's disk", "fail", {"settings": {**WELL["settings"], "fsync": "off"}}),
        ("store's disk", "fail", {"settings": {**WELL["settings"], "full_page_writes": "off"}}),
        ("store's disk", "warn", {"settings": {**WELL["settings"], "synchronous_commit": "off"}}),
        ("store's room", "warn", {"used_connections": 90}),
        ("store's clock", "warn", {"clock_ahead_ms": -9_000}),
    ],
)
def test_what_is_not_well_is_told_with_a_remedy(name: str, status: str, changed: dict[str, Any]) -> None:
    assert {one.status for one in services.judge_database("postgresql://x", inspection.PostgresHealth(**WELL))} == {"ok"}
    told = [
        one
        for one in services.judge_database("postgresql://x", inspection.PostgresHealth(**{**WELL, **changed}))
        if one.status != "ok"
    ]
    assert [(one.name, one.status) for one in told] == [(name, status)]
    assert told[0].remedy
