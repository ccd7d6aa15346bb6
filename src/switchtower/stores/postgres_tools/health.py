"""How a database server is set up for us: its version, what it promises of a commit, its free places, its clock. Reads only."""

import time

from msgspec import Struct

from switchtower.stores.postgres.connections import SCHEMA, PostgresConnection
from switchtower.stores.postgres_tools import look

OLDEST = 140_000
"""As the server counts versions: 14."""


class PostgresHealth(Struct, frozen=True, kw_only=True):
    version: str
    version_number: int
    schema: int
    """0 while it holds no tower."""
    settings: dict[str, str]
    """Those of `PROMISES`, as the server gives them to anybody."""
    most_connections: int
    used_connections: int
    is_standby: bool
    may_create: bool
    """A first start makes a schema of our own."""
    clock_ahead_ms: int
    """Of ours, half of the way there and back taken into account."""
    nodes: list[str]
    """Who is alive, by address."""
    bytes: int


PROMISES = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names", "server_encoding")


async def check_health(dsn: str) -> PostgresHealth:
    """Raises `looking.CannotLook` when it cannot be reached."""
    async with look.open_database(dsn, {"default_transaction_read_only": "on"}) as connection:
        schema = await look.read_schema_version(connection)
        return PostgresHealth(
            version=await connection.fetchval("SHOW server_version"),
            version_number=int(await connection.fetchval("SHOW server_version_num")),
            schema=schema,
            # Not as they are in this connection: that puts some of them right by itself.
            settings=dict(
                await connection.fetch("SELECT name, reset_val FROM pg_settings WHERE name = ANY ($1)", list(PROMISES))
            ),
            most_connections=await connection.fetchval(
                "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
            ),
            used_connections=await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            ),
            is_standby=await connection.fetchval("SELECT pg_is_in_recovery()"),
            may_create=await connection.fetchval("SELECT has_database_privilege(current_database(), 'CREATE')"),
            clock_ahead_ms=await _measure_clock_skew_ms(connection),
            nodes=await list_live_nodes(connection) if schema else [],
            bytes=await connection.fetchval("SELECT pg_database_size(current_database())"),
        )


async def list_live_nodes(connection: PostgresConnection, where: str = SCHEMA) -> list[str]:
    """The nodes whose lease lasts, by the database's clock."""
    rows = await connection.fetch(
        f"SELECT node_id, address FROM {where}.nodes WHERE expires_at > clock_timestamp() ORDER BY node_id"  # noqa: S608 - our own name
    )
    return [f"{node_id} at {address}" for node_id, address in rows]


async def _measure_clock_skew_ms(connection: PostgresConnection) -> int:
    """The narrowest of a few looks: the way there and back is the error."""
    narrowest = None
    ahead = 0
    for _ in range(3):
        asked_at = time.time()
        theirs = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        answered_at = time.time()
        if narrowest is None or answered_at - asked_at < narrowest:
            narrowest = answered_at - asked_at
            ahead = round((theirs - (asked_at + answered_at) / 2) * 1000)
    return ahead
