"""Checks of the daemon's services: journal, sandbox, models and keys, MCP servers, hub, and a shared PostgreSQL (reachability,
durability settings, free connections). No finding contains a password.

Starts an MCP server, lists its tools, and stops it again together with every process that it started."""

import asyncio
import os
import secrets
import socket
import sqlite3
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from switchtower import config
from switchtower.accounts import credentials
from switchtower.cli.doctor import checks
from switchtower.client import admin, discovery, errors
from switchtower.client.client import DaemonClient
from switchtower.core.ports import host_services
from switchtower.models import providers
from switchtower.models.catalog import Catalog
from switchtower.models.keys import KeyStore
from switchtower.presentation import formats
from switchtower.settings.sources import ConfigError
from switchtower.stores.postgres import database
from switchtower.stores.postgres import inspection as postgres_inspection
from switchtower.stores.sqlite import inspection
from switchtower.stores.verification import StoreUnreadable
from switchtower.tools import concurrency
from switchtower.tools.mcp import config as mcp_config
from switchtower.tools.mcp import server
from switchtower.tools.mcp.config import ServerConfig
from switchtower.tools.mcp.tool_list import ListedTool
from switchtower.tools.sandboxes import sandbox

TIMEOUT = 20.0


class ProbeResult(Struct, frozen=True):
    name: str
    tools: tuple[ListedTool, ...] | None
    """None when the list could not be fetched."""
    told: tuple[str, ...]
    """Errors and notices for the user."""
    seconds: float

    @property
    def is_ok(self) -> bool:
        return self.tools is not None


def find_servers(settings: config.Settings, folder: Path) -> mcp_config.FoundServers:
    """Finds the servers that a session in this folder would use."""
    return mcp_config.find_servers(str(folder), settings.mcp_file, os.environ)


async def probe_server(
    configured: ServerConfig, settings: config.Settings, folder: Path, timeout_s: float = TIMEOUT
) -> ProbeResult:
    """Probes one server. A server from the folder's own file runs in the configured sandbox, as in a session."""
    told: list[str] = []

    async def report(code: str, sentence: str) -> None:
        told.append(sentence)

    place = server.ServerLocation(
        f"probe_{secrets.token_hex(4)}",
        str(folder),
        sandbox.find_best_available()[0] if settings.sandbox == "auto" else settings.sandbox,
        dict(os.environ),
        partial(sandbox.choose_sandbox, network=settings.sandbox_network),
    )
    tried = server.McpServer(configured, place, server.ServerLimits(start_s=timeout_s), report)
    started = time.monotonic()
    try:
        tools = await tried.prepare()
    finally:
        await concurrency.run_to_completion(tried.stop())
    return ProbeResult(configured.name, tools, tuple(told), time.monotonic() - started)


async def probe_servers(
    settings: config.Settings, folder: Path, timeout_s: float = TIMEOUT, *, own_only: bool = True
) -> list[ProbeResult]:
    """Probes the servers concurrently. With `own_only`, it does not start servers that came with the folder."""
    servers = [one for one in find_servers(settings, folder).servers if one.trusted or not own_only]
    return await asyncio.gather(*(probe_server(one, settings, folder, timeout_s) for one in servers))


CHECK_TIMEOUT = 10.0
LARGE_JOURNAL_BYTES = 10 * 1024**3
LARGE_LOG_BYTES = 1024**3
MAX_CLOCK_SKEW_MS = 5 * 60_000
_CONNECTED = "connected"
_HUB_TIMEOUT = 3.0


def check_services(settings: config.Settings, *, deep: bool = False) -> Iterator[checks.Finding]:
    if settings.store is None:
        yield from _check_journal(settings)
        yield from _check_registry(settings)
    else:
        yield from check_database(settings)
    yield _check_logins(settings)
    yield _check_sandbox(settings)
    yield from _check_models(settings)
    yield from _check_mcp_servers(settings, deep=deep)
    yield _check_hub(settings, deep=deep)


def _check_journal(settings: config.Settings) -> Iterator[checks.Finding]:
    path = settings.journal_path
    if not path.exists():
        yield checks.report_ok("journal", f"{path} is not there yet")
        return
    try:
        with inspection.open_readonly(path) as connection:
            found = inspection.run_quick_check(connection, CHECK_TIMEOUT)
            newest_ms = inspection.read_newest_entry_ms(connection)
    except (StoreUnreadable, sqlite3.Error) as problem:
        yield checks.report_failure(
            "journal", getattr(problem, "problem", str(problem)), getattr(problem, "hint", "see `tower journal verify`")
        )
        return
    if found:
        yield checks.report_failure(
            "journal", f"{path} is damaged: {found[0]}", "see `tower journal verify`; `tower restore` takes a backup"
        )
    log = path.with_name(f"{path.name}-wal")
    size, log_size = path.stat().st_size, log.stat().st_size if log.exists() else 0
    detail = f"{formats.format_size(size)}, and {formats.format_size(log_size)} of log"
    if found is None:
        yield checks.report_ok("journal", f"{detail}; too large to be checked here: see `tower journal verify`")
    elif not found and size > LARGE_JOURNAL_BYTES:
        yield checks.report_warning("journal", detail, "keep less with `tower config set retention_days 7`, or delete sessions")
    elif not found and log_size > LARGE_LOG_BYTES:
        yield checks.report_warning(
            "journal", detail, "something reads for long and keeps the log from shrinking; `tower stop` shrinks it"
        )
    elif not found:
        yield checks.report_ok("journal", detail)
    if newest_ms is not None and newest_ms > time.time() * 1000 + MAX_CLOCK_SKEW_MS:
        yield checks.report_warning("journal's clock", "its newest entry is in the future", "set the clock of this machine")


def _check_logins(settings: config.Settings) -> checks.Finding:
    """Checks the secret that signs access tokens, and the user from the environment."""
    try:
        credentials.check_credentials(settings.data_dir, os.environ)
    except ConfigError as problem:
        return checks.report_failure("logins", problem.message, problem.hint)
    return checks.report_ok("logins", "their settings can be used")


def _check_registry(settings: config.Settings) -> Iterator[checks.Finding]:
    if not settings.registry_path.exists():
        return
    try:
        with inspection.open_readonly(settings.registry_path, inspection.REGISTRY) as connection:
            found = inspection.run_quick_check(connection, CHECK_TIMEOUT)
    except StoreUnreadable as problem:
        yield checks.report_failure("registry", problem.problem, problem.hint)
        return
    if found:
        yield checks.report_failure("registry", f"it is damaged: {found[0]}", "`tower restore` takes a backup")
    else:
        yield checks.report_ok("registry", formats.format_size(settings.registry_path.stat().st_size))


def _check_sandbox(settings: config.Settings) -> checks.Finding:
    trouble = sandbox.probe_sandbox("bubblewrap")
    is_auto = settings.sandbox == "auto"
    chosen = "agents' commands run in it (`auto`)" if is_auto else f"sessions use `{settings.sandbox}`"
    if trouble is not None and is_auto:
        problem, _, remedy = trouble.partition("; hint: ")
        return checks.report_warning("sandbox", f"agents' commands run without a sandbox (`auto`): {problem}", remedy)
    if trouble is not None:
        problem, _, remedy = trouble.partition("; hint: ")
        if settings.sandbox == "bubblewrap":
            return checks.report_failure("sandbox", f"{chosen}, and {problem}", remedy)
        return checks.report_warning("sandbox", f"{chosen}; {problem}", remedy)
    if not is_auto and (other := sandbox.probe_sandbox(settings.sandbox)) is not None:
        problem, _, remedy = other.partition("; hint: ")
        return checks.report_failure("sandbox", f"{chosen}, and {problem}", remedy)
    if (lack := sandbox.describe_missing_filter()) is not None:
        return checks.report_warning(
            "sandbox", f"bubblewrap works; {chosen}; {lack}", "use x86-64 or arm64 for the whole sandbox"
        )
    return checks.report_ok("sandbox", f"bubblewrap works; {chosen}")


def _check_models(settings: config.Settings) -> Iterator[checks.Finding]:
    """Lists the models as the running daemon does, which has just received this shell's keys, or else as a new daemon would."""
    try:
        known = Catalog(settings.models, os.environ, stored_keys=KeyStore(settings.folders.config), in_shell=True)
        listed = asyncio.run(_fetch_daemon_models(settings)) if discovery.find_lock_holder(settings) else None
        offers = known.list_entries() if listed is None else listed
    except ConfigError as problem:
        yield checks.report_failure("models", problem.message, problem.hint)
        return
    sources = {one.name: one.key_source for one in offers if one.usable and one.key_source}
    named = ", ".join(f"{name} from {source}" for name, source in sources.items())
    yield checks.report_ok("model keys", named or "none was found")
    for one in offers:
        if one.name in settings.models and not one.usable:
            reason, _, remedy = one.reason.partition("; hint: ")
            yield checks.report_warning("models", f"`{one.name}`: {reason}", remedy or "see `tower models`")
    usable = [one.name for one in offers if one.usable and one.name != providers.DEMO]
    if usable and settings.provider == providers.DEMO:
        yield checks.report_warning(
            "models",
            f'`provider = "demo"` is configured, so {", ".join(usable)} is not used',
            "`tower config unset provider` lets the first usable model answer",
        )
    elif usable:
        yield checks.report_ok("models", f"usable: {', '.join(usable)}, demo")
    else:
        yield checks.report_warning(
            "models", "only the demo model can be used", "set a key such as `ANTHROPIC_API_KEY`, or run `tower login PROVIDER`"
        )
    if discovery.needs_restart(settings):
        yield checks.report_warning("configuration", "the daemon was started before config.toml changed", "run `tower restart`")


async def _fetch_daemon_models(settings: config.Settings) -> "list[host_services.ModelInfo] | None":
    """Returns None when the daemon does not answer."""
    try:
        async with await DaemonClient.connect(settings, start=False) as client:
            return [
                host_services.ModelInfo(
                    one.name, one.provider, one.model, usable=one.usable, reason=one.reason, key_source=one.keySource
                )
                for one in await client.list_models()
            ]
    except errors.ClientError:
        return None


def _check_mcp_servers(settings: config.Settings, *, deep: bool) -> Iterator[checks.Finding]:
    folder = Path.home() if Path.home().is_dir() else Path("/")
    found = find_servers(settings, folder)
    for problem in found.problems:
        reason, _, remedy = problem.partition("; hint: ")
        yield checks.report_warning("mcp", reason, remedy or f"correct {settings.mcp_file}")
    own = [one for one in found.servers if one.trusted]
    if not own:
        yield checks.report_ok("mcp", f"no servers in {settings.mcp_file}")
    elif not deep:
        yield checks.report_ok("mcp", f"{', '.join(one.name for one in own)}; `tower doctor --deep` starts them")
    else:
        for probed in asyncio.run(probe_servers(settings, folder)):
            if probed.tools is not None:
                yield checks.report_ok("mcp", f"{probed.name}: {len(probed.tools)} tools after {probed.seconds:.1f} s")
            else:
                problem, _, remedy = "; ".join(probed.told).partition("; hint: ")
                yield checks.report_failure("mcp", problem or "it cannot be had", remedy or f"try `tower mcp test {probed.name}`")


def _check_hub(settings: config.Settings, *, deep: bool) -> checks.Finding:
    if settings.hub is None:
        return checks.report_ok("hub", "none is dialled")
    if deep and (problem := _find_connection_problem(settings.hub)) is not None:
        return checks.report_failure(
            "hub", f"{settings.hub} cannot be reached: {problem}", "see whether it runs, and whether a wall is between"
        )
    if not discovery.find_lock_holder(settings):
        return checks.report_ok("hub", f"{settings.hub}, dialled when the daemon runs")
    link = admin.get_if_running(settings, "link")
    if not isinstance(link, dict) or not link.get("hub"):
        return checks.report_warning(
            "hub", f"{settings.hub} is not dialled by the daemon that runs", "`tower stop`, and start it anew"
        )
    detail = f"{link['hub']}, {link.get('phase')}"
    if link.get("phase") == _CONNECTED:
        return checks.report_ok("hub", detail)
    reason, _, remedy = str(link.get("problem") or "").partition("; hint: ")
    detail += f": {reason}" if reason else ""
    return checks.report_warning("hub", detail, remedy or "the daemon keeps dialling; see `tower logs`")


def _find_connection_problem(hub: str) -> str | None:
    address = urlsplit(hub)
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname or "", port), timeout=_HUB_TIMEOUT).close()
    except (OSError, ValueError) as problem:
        return getattr(problem, "strerror", None) or str(problem)
    return None


DATABASE_TIMEOUT = 15.0
CONNECTIONS_PER_NODE = 20
"""The approximate maximum of a node's connections: writes, reads, leases, the registry, searches, and notifications."""
MAX_CLOCK_DIFFERENCE_MS = 2_000
_CONNECTION_REMEDY = "see whether it runs, and whether the address is right: `tower config show store`"


def check_database(settings: config.Settings) -> Iterator[checks.Finding]:
    assert settings.store is not None, "who has none is not asked"
    place = database.mask_password(settings.store)
    try:
        examined = asyncio.run(asyncio.wait_for(postgres_inspection.check_health(settings.store), DATABASE_TIMEOUT))
    except StoreUnreadable as problem:
        yield checks.report_failure("store", problem.problem, problem.hint)
        return
    except TimeoutError:
        yield checks.report_failure("store", f"`{place}` does not answer within {DATABASE_TIMEOUT:g} s", _CONNECTION_REMEDY)
        return
    yield from judge_database(place, examined)


def judge_database(place: str, examined: postgres_inspection.PostgresHealth) -> Iterator[checks.Finding]:
    yield _check_connection(place, examined)
    yield _check_version(examined)
    yield _check_schema(examined)
    yield from _check_durability(examined)
    yield _check_room(examined)
    yield _check_clock(examined)


def _check_connection(place: str, examined: postgres_inspection.PostgresHealth) -> checks.Finding:
    if examined.is_standby:
        return checks.report_failure(
            "store", f"{place} is a standby and takes no writes", "name the primary, or promote this one"
        )
    nodes = f", nodes: {', '.join(examined.nodes)}" if examined.nodes else ", no node is alive"
    return checks.report_ok("store", f"{place}, {formats.format_size(examined.bytes)}{nodes}")


def _check_version(examined: postgres_inspection.PostgresHealth) -> checks.Finding:
    if examined.version_number < postgres_inspection.OLDEST:
        return checks.report_failure(
            "store's version", examined.version, f"use PostgreSQL {postgres_inspection.OLDEST // 10_000} or newer"
        )
    if examined.settings["server_encoding"] != "UTF8":
        encoding = examined.settings["server_encoding"]
        return checks.report_failure(
            "store's version", f"the database's encoding is {encoding}", "create one with the encoding UTF8"
        )
    return checks.report_ok("store's version", f"PostgreSQL {examined.version}")


def _check_schema(examined: postgres_inspection.PostgresHealth) -> checks.Finding:
    newest = max(database.load_scripts())
    if not examined.schema:
        if not examined.may_create:
            remedy = "`GRANT CREATE ON DATABASE …` to our user; a first start makes a schema of our own"
            return checks.report_failure("store's schema", "it is not there, and we may not make it", remedy)
        return checks.report_ok("store's schema", "not there yet; the first node makes it")
    if examined.schema > newest:
        return checks.report_warning(
            "store's schema", f"version {examined.schema}, and this program knows {newest}", "use the newer program here too"
        )
    behind = "" if examined.schema == newest else f"; the next start brings it to {newest}"
    return checks.report_ok("store's schema", f"version {examined.schema}{behind}")


def _check_durability(examined: postgres_inspection.PostgresHealth) -> Iterator[checks.Finding]:
    settings = examined.settings
    for name in ("fsync", "full_page_writes"):
        if settings[name] != "on":
            remedy = f"set `{name} = on`: without it a power cut loses or damages what was acknowledged"
            yield checks.report_failure("store's disk", f"`{name}` is {settings[name]}", remedy)
            return
    standby, commit = settings["synchronous_standby_names"], settings["synchronous_commit"]
    if commit == "off":
        remedy = "set `synchronous_commit = on`; our own connections do so by themselves"
        yield checks.report_warning("store's disk", "`synchronous_commit` is off", remedy)
        return
    waits = f"; commits wait for `{standby}`" if standby and commit != "local" else ""
    yield checks.report_ok("store's disk", f"`fsync` is on, `synchronous_commit` is {commit}{waits}")


def _check_room(examined: postgres_inspection.PostgresHealth) -> checks.Finding:
    left = examined.most_connections - examined.used_connections
    detail = f"{left} of {examined.most_connections} connections are free"
    if left < CONNECTIONS_PER_NODE:
        return checks.report_warning("store's room", detail, "raise `max_connections`: a node takes up to about 20")
    return checks.report_ok("store's room", detail)


def _check_clock(examined: postgres_inspection.PostgresHealth) -> checks.Finding:
    ahead_ms = examined.clock_ahead_ms
    detail = f"{abs(ahead_ms) / 1000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} ours"
    if abs(ahead_ms) > MAX_CLOCK_DIFFERENCE_MS:
        return checks.report_warning(
            "store's clock", detail, "let both machines keep time with NTP: expiries are told by our clock"
        )
    return checks.report_ok("store's clock", detail if abs(ahead_ms) >= 100 else "the same as ours")
