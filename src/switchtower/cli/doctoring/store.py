"""The PostgreSQL that nodes share: whether it can be reached, what it promises, and whether there is room. Shows no password."""

import asyncio
from collections.abc import Iterator

from switchtower import config
from switchtower.cli import amounts
from switchtower.cli.doctoring import finding
from switchtower.stores.looking import StoreUnreadable
from switchtower.stores.postgres import schema
from switchtower.stores.postgres_tools import addresses, health

DATABASE_TIMEOUT = 15.0
CONNECTIONS_PER_NODE = 20
"""About as many as a node has at most: for writing, reading, leases, the registry, searches, and for hearing of the others."""
MAX_CLOCK_DIFFERENCE_MS = 2_000
_CONNECTION_REMEDY = "see whether it runs, and whether the address is right: `tower config show store`"


def check_database(settings: config.Settings) -> Iterator[finding.Finding]:
    assert settings.store is not None, "who has none is not asked"
    place = addresses.mask_password(settings.store)
    try:
        examined = asyncio.run(asyncio.wait_for(health.check_health(settings.store), DATABASE_TIMEOUT))
    except StoreUnreadable as problem:
        yield finding.report_failure("store", problem.problem, problem.hint)
        return
    except TimeoutError:
        yield finding.report_failure("store", f"`{place}` does not answer within {DATABASE_TIMEOUT:g} s", _CONNECTION_REMEDY)
        return
    yield from judge_database(place, examined)


def judge_database(place: str, examined: health.PostgresHealth) -> Iterator[finding.Finding]:
    yield _check_connection(place, examined)
    yield _check_version(examined)
    yield _check_schema(examined)
    yield from _check_durability(examined)
    yield _check_room(examined)
    yield _check_clock(examined)


def _check_connection(place: str, examined: health.PostgresHealth) -> finding.Finding:
    if examined.is_standby:
        return finding.report_failure(
            "store", f"{place} is a standby and takes no writes", "name the primary, or promote this one"
        )
    nodes = f", nodes: {', '.join(examined.nodes)}" if examined.nodes else ", no node is alive"
    return finding.report_ok("store", f"{place}, {amounts.format_size(examined.bytes)}{nodes}")


def _check_version(examined: health.PostgresHealth) -> finding.Finding:
    if examined.version_number < health.OLDEST:
        return finding.report_failure("store's version", examined.version, f"use PostgreSQL {health.OLDEST // 10_000} or newer")
    if examined.settings["server_encoding"] != "UTF8":
        encoding = examined.settings["server_encoding"]
        return finding.report_failure(
            "store's version", f"the database's encoding is {encoding}", "create one with the encoding UTF8"
        )
    return finding.report_ok("store's version", f"PostgreSQL {examined.version}")


def _check_schema(examined: health.PostgresHealth) -> finding.Finding:
    newest = max(schema.load_scripts())
    if not examined.schema:
        if not examined.may_create:
            remedy = "`GRANT CREATE ON DATABASE …` to our user; a first start makes a schema of our own"
            return finding.report_failure("store's schema", "it is not there, and we may not make it", remedy)
        return finding.report_ok("store's schema", "not there yet; the first node makes it")
    if examined.schema > newest:
        return finding.report_warning(
            "store's schema", f"version {examined.schema}, and this program knows {newest}", "use the newer program here too"
        )
    behind = "" if examined.schema == newest else f"; the next start brings it to {newest}"
    return finding.report_ok("store's schema", f"version {examined.schema}{behind}")


def _check_durability(examined: health.PostgresHealth) -> Iterator[finding.Finding]:
    settings = examined.settings
    for name in ("fsync", "full_page_writes"):
        if settings[name] != "on":
            remedy = f"set `{name} = on`: without it a power cut loses or damages what was acknowledged"
            yield finding.report_failure("store's disk", f"`{name}` is {settings[name]}", remedy)
            return
    standby, commit = settings["synchronous_standby_names"], settings["synchronous_commit"]
    if commit == "off":
        remedy = "set `synchronous_commit = on`; our own connections do so by themselves"
        yield finding.report_warning("store's disk", "`synchronous_commit` is off", remedy)
        return
    waits = f"; commits wait for `{standby}`" if standby and commit != "local" else ""
    yield finding.report_ok("store's disk", f"`fsync` is on, `synchronous_commit` is {commit}{waits}")


def _check_room(examined: health.PostgresHealth) -> finding.Finding:
    left = examined.most_connections - examined.used_connections
    detail = f"{left} of {examined.most_connections} connections are free"
    if left < CONNECTIONS_PER_NODE:
        return finding.report_warning("store's room", detail, "raise `max_connections`: a node takes up to about 20")
    return finding.report_ok("store's room", detail)


def _check_clock(examined: health.PostgresHealth) -> finding.Finding:
    ahead_ms = examined.clock_ahead_ms
    detail = f"{abs(ahead_ms) / 1000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} ours"
    if abs(ahead_ms) > MAX_CLOCK_DIFFERENCE_MS:
        return finding.report_warning(
            "store's clock", detail, "let both machines keep time with NTP: expiries are told by our clock"
        )
    return finding.report_ok("store's clock", detail if abs(ahead_ms) >= 100 else "the same as ours")
