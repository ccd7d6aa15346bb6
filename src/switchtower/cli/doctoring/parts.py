"""The daemon's parts: the journal, the sandbox, models and their keys, MCP servers, the hub."""

import asyncio
import os
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from switchtower import config
from switchtower.cli import admin, amounts
from switchtower.cli.doctoring import finding, store
from switchtower.cli.mcp_servers import probing
from switchtower.client import discover, errors
from switchtower.client.client import DaemonClient
from switchtower.core import workshop
from switchtower.daemon import credentials
from switchtower.models import providers
from switchtower.models.catalog import Catalog
from switchtower.models.key_store import KeyStore
from switchtower.stores import sqlite_look
from switchtower.stores.looking import StoreUnreadable
from switchtower.tools.sandboxes import sandbox

CHECK_TIMEOUT = 10.0
LARGE_JOURNAL_BYTES = 10 * 1024**3
LARGE_LOG_BYTES = 1024**3
MAX_CLOCK_SKEW_MS = 5 * 60_000
_CONNECTED = "connected"
_HUB_TIMEOUT = 3.0


def check_services(settings: config.Settings, *, deep: bool = False) -> Iterator[finding.Finding]:
    if settings.store is None:
        yield from _check_journal(settings)
        yield from _check_registry(settings)
    else:
        yield from store.check_database(settings)
    yield _check_logins(settings)
    yield _check_sandbox(settings)
    yield from _check_models(settings)
    yield from _check_mcp_servers(settings, deep=deep)
    yield _check_hub(settings, deep=deep)


def _check_journal(settings: config.Settings) -> Iterator[finding.Finding]:
    path = settings.journal_path
    if not path.exists():
        yield finding.report_ok("journal", f"{path} is not there yet")
        return
    try:
        with sqlite_look.open_readonly(path) as connection:
            found = sqlite_look.run_quick_check(connection, CHECK_TIMEOUT)
            newest_ms = sqlite_look.read_newest_entry_ms(connection)
    except (StoreUnreadable, sqlite3.Error) as problem:
        yield finding.report_failure(
            "journal", getattr(problem, "problem", str(problem)), getattr(problem, "hint", "see `tower journal verify`")
        )
        return
    if found:
        yield finding.report_failure(
            "journal", f"{path} is damaged: {found[0]}", "see `tower journal verify`; `tower restore` takes a backup"
        )
    log = path.with_name(f"{path.name}-wal")
    size, log_size = path.stat().st_size, log.stat().st_size if log.exists() else 0
    detail = f"{amounts.format_size(size)}, and {amounts.format_size(log_size)} of log"
    if found is None:
        yield finding.report_ok("journal", f"{detail}; too large to be checked here: see `tower journal verify`")
    elif not found and size > LARGE_JOURNAL_BYTES:
        yield finding.report_warning("journal", detail, "keep less with `tower config set retention_days 7`, or delete sessions")
    elif not found and log_size > LARGE_LOG_BYTES:
        yield finding.report_warning(
            "journal", detail, "something reads for long and keeps the log from shrinking; `tower stop` shrinks it"
        )
    elif not found:
        yield finding.report_ok("journal", detail)
    if newest_ms is not None and newest_ms > time.time() * 1000 + MAX_CLOCK_SKEW_MS:
        yield finding.report_warning("journal's clock", "its newest entry is in the future", "set the clock of this machine")


def _check_logins(settings: config.Settings) -> finding.Finding:
    """The secret that signs access tokens, and the user of the environment."""
    try:
        credentials.check_credentials(settings.data_dir, os.environ)
    except config.ConfigError as problem:
        return finding.report_failure("logins", problem.message, problem.hint)
    return finding.report_ok("logins", "their settings can be used")


def _check_registry(settings: config.Settings) -> Iterator[finding.Finding]:
    if not settings.registry_path.exists():
        return
    try:
        with sqlite_look.open_readonly(settings.registry_path, sqlite_look.REGISTRY) as connection:
            found = sqlite_look.run_quick_check(connection, CHECK_TIMEOUT)
    except StoreUnreadable as problem:
        yield finding.report_failure("registry", problem.problem, problem.hint)
        return
    if found:
        yield finding.report_failure("registry", f"it is damaged: {found[0]}", "`tower restore` takes a backup")
    else:
        yield finding.report_ok("registry", amounts.format_size(settings.registry_path.stat().st_size))


def _check_sandbox(settings: config.Settings) -> finding.Finding:
    trouble = sandbox.probe_sandbox("bubblewrap")
    is_auto = settings.sandbox == "auto"
    chosen = "agents' commands run in it (`auto`)" if is_auto else f"sessions use `{settings.sandbox}`"
    if trouble is not None and is_auto:
        problem, _, remedy = trouble.partition("; hint: ")
        return finding.report_warning("sandbox", f"agents' commands run without a sandbox (`auto`): {problem}", remedy)
    if trouble is not None:
        problem, _, remedy = trouble.partition("; hint: ")
        if settings.sandbox == "bubblewrap":
            return finding.report_failure("sandbox", f"{chosen}, and {problem}", remedy)
        return finding.report_warning("sandbox", f"{chosen}; {problem}", remedy)
    if not is_auto and (other := sandbox.probe_sandbox(settings.sandbox)) is not None:
        problem, _, remedy = other.partition("; hint: ")
        return finding.report_failure("sandbox", f"{chosen}, and {problem}", remedy)
    if (lack := sandbox.describe_missing_filter()) is not None:
        return finding.report_warning(
            "sandbox", f"bubblewrap works; {chosen}; {lack}", "use x86-64 or arm64 for the whole sandbox"
        )
    return finding.report_ok("sandbox", f"bubblewrap works; {chosen}")


def _check_models(settings: config.Settings) -> Iterator[finding.Finding]:
    """As the running daemon lists them, which this shell's keys have just been handed to; else as one would that starts now."""
    try:
        known = Catalog(settings.models, os.environ, stored_keys=KeyStore(settings.folders.config), in_shell=True)
        listed = asyncio.run(_fetch_daemon_models(settings)) if discover.find_lock_holder(settings) else None
        offers = known.list_entries() if listed is None else listed
    except config.ConfigError as problem:
        yield finding.report_failure("models", problem.message, problem.hint)
        return
    sources = {one.name: one.key_source for one in offers if one.usable and one.key_source}
    named = ", ".join(f"{name} from {source}" for name, source in sources.items())
    yield finding.report_ok("model keys", named or "none was found")
    for one in offers:
        if one.name in settings.models and not one.usable:
            reason, _, remedy = one.reason.partition("; hint: ")
            yield finding.report_warning("models", f"`{one.name}`: {reason}", remedy or "see `tower models`")
    usable = [one.name for one in offers if one.usable and one.name != providers.DEMO]
    if usable and settings.provider == providers.DEMO:
        yield finding.report_warning(
            "models",
            f'`provider = "demo"` is configured, so {", ".join(usable)} is not used',
            "`tower config unset provider` lets the first usable model answer",
        )
    elif usable:
        yield finding.report_ok("models", f"usable: {', '.join(usable)}, demo")
    else:
        yield finding.report_warning(
            "models", "only the demo model can be used", "set a key such as `ANTHROPIC_API_KEY`, or run `tower login PROVIDER`"
        )
    if discover.needs_restart(settings):
        yield finding.report_warning("configuration", "the daemon was started before config.toml changed", "run `tower restart`")


async def _fetch_daemon_models(settings: config.Settings) -> "list[workshop.ModelInfo] | None":
    """None when it does not answer."""
    try:
        async with await DaemonClient.connect(settings, start=False) as client:
            return [
                workshop.ModelInfo(
                    one.name, one.provider, one.model, usable=one.usable, reason=one.reason, key_source=one.keySource
                )
                for one in await client.list_models()
            ]
    except errors.ClientError:
        return None


def _check_mcp_servers(settings: config.Settings, *, deep: bool) -> Iterator[finding.Finding]:
    folder = Path.home() if Path.home().is_dir() else Path("/")
    found = probing.find_servers(settings, folder)
    for problem in found.problems:
        reason, _, remedy = problem.partition("; hint: ")
        yield finding.report_warning("mcp", reason, remedy or f"correct {settings.mcp_file}")
    own = [one for one in found.servers if one.trusted]
    if not own:
        yield finding.report_ok("mcp", f"no servers in {settings.mcp_file}")
    elif not deep:
        yield finding.report_ok("mcp", f"{', '.join(one.name for one in own)}; `tower doctor --deep` starts them")
    else:
        for probed in asyncio.run(probing.probe_servers(settings, folder)):
            if probed.tools is not None:
                yield finding.report_ok("mcp", f"{probed.name}: {len(probed.tools)} tools after {probed.seconds:.1f} s")
            else:
                problem, _, remedy = "; ".join(probed.told).partition("; hint: ")
                yield finding.report_failure(
                    "mcp", problem or "it cannot be had", remedy or f"try `tower mcp test {probed.name}`"
                )


def _check_hub(settings: config.Settings, *, deep: bool) -> finding.Finding:
    if settings.hub is None:
        return finding.report_ok("hub", "none is dialled")
    if deep and (problem := _find_connection_problem(settings.hub)) is not None:
        return finding.report_failure(
            "hub", f"{settings.hub} cannot be reached: {problem}", "see whether it runs, and whether a wall is between"
        )
    if not discover.find_lock_holder(settings):
        return finding.report_ok("hub", f"{settings.hub}, dialled when the daemon runs")
    link = admin.get_if_running(settings, "link")
    if not isinstance(link, dict) or not link.get("hub"):
        return finding.report_warning(
            "hub", f"{settings.hub} is not dialled by the daemon that runs", "`tower stop`, and start it anew"
        )
    detail = f"{link['hub']}, {link.get('phase')}"
    if link.get("phase") == _CONNECTED:
        return finding.report_ok("hub", detail)
    reason, _, remedy = str(link.get("problem") or "").partition("; hint: ")
    detail += f": {reason}" if reason else ""
    return finding.report_warning("hub", detail, remedy or "the daemon keeps dialling; see `tower logs`")


def _find_connection_problem(hub: str) -> str | None:
    address = urlsplit(hub)
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname or "", port), timeout=_HUB_TIMEOUT).close()
    except (OSError, ValueError) as problem:
        return getattr(problem, "strerror", None) or str(problem)
    return None
