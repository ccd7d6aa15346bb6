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
from switchtower.client.client import Client
from switchtower.core import workshop
from switchtower.daemon import credentials
from switchtower.models import providers
from switchtower.models.catalog import Catalog
from switchtower.models.key_store import KeyStore
from switchtower.stores import sqlite_look
from switchtower.stores.looking import CannotLook
from switchtower.tools.sandboxes import sandbox

CHECK_TIME = 10.0
LARGE_JOURNAL = 10 * 1024**3
LARGE_LOG = 1024**3
FUTURE_MS = 5 * 60_000
_CONNECTED = "connected"
_HUB_PATIENCE = 3.0


def look(settings: config.Settings, *, deep: bool = False) -> Iterator[finding.Finding]:
    if settings.store is None:
        yield from _journal(settings)
        yield from _registry(settings)
    else:
        yield from store.look(settings)
    yield _logins(settings)
    yield _sandbox(settings)
    yield from _models(settings)
    yield from _servers(settings, deep=deep)
    yield _hub(settings, deep=deep)


def _journal(settings: config.Settings) -> Iterator[finding.Finding]:
    path = settings.journal_path
    if not path.exists():
        yield finding.ok("journal", f"{path} is not there yet")
        return
    try:
        with sqlite_look.opened(path) as connection:
            found = sqlite_look.quick_check(connection, CHECK_TIME)
            newest_ms = sqlite_look.newest_entry_ms(connection)
    except (CannotLook, sqlite3.Error) as problem:
        yield finding.fail(
            "journal", getattr(problem, "problem", str(problem)), getattr(problem, "hint", "see `tower journal verify`")
        )
        return
    if found:
        yield finding.fail(
            "journal", f"{path} is damaged: {found[0]}", "see `tower journal verify`; `tower restore` takes a backup"
        )
    log = path.with_name(f"{path.name}-wal")
    size, log_size = path.stat().st_size, log.stat().st_size if log.exists() else 0
    detail = f"{amounts.size(size)}, and {amounts.size(log_size)} of log"
    if found is None:
        yield finding.ok("journal", f"{detail}; too large to be checked here: see `tower journal verify`")
    elif not found and size > LARGE_JOURNAL:
        yield finding.warn("journal", detail, "keep less with `tower config set retention_days 7`, or delete sessions")
    elif not found and log_size > LARGE_LOG:
        yield finding.warn(
            "journal", detail, "something reads for long and keeps the log from shrinking; `tower stop` shrinks it"
        )
    elif not found:
        yield finding.ok("journal", detail)
    if newest_ms is not None and newest_ms > time.time() * 1000 + FUTURE_MS:
        yield finding.warn("journal's clock", "its newest entry is in the future", "set the clock of this machine")


def _logins(settings: config.Settings) -> finding.Finding:
    """The secret that signs access tokens, and the user of the environment."""
    try:
        credentials.check(settings.data_dir, os.environ)
    except config.ConfigError as problem:
        return finding.fail("logins", problem.message, problem.hint)
    return finding.ok("logins", "their settings can be used")


def _registry(settings: config.Settings) -> Iterator[finding.Finding]:
    if not settings.registry_path.exists():
        return
    try:
        with sqlite_look.opened(settings.registry_path, sqlite_look.REGISTRY) as connection:
            found = sqlite_look.quick_check(connection, CHECK_TIME)
    except CannotLook as problem:
        yield finding.fail("registry", problem.problem, problem.hint)
        return
    if found:
        yield finding.fail("registry", f"it is damaged: {found[0]}", "`tower restore` takes a backup")
    else:
        yield finding.ok("registry", amounts.size(settings.registry_path.stat().st_size))


def _sandbox(settings: config.Settings) -> finding.Finding:
    trouble = sandbox.probe("bubblewrap")
    is_auto = settings.sandbox == "auto"
    chosen = "agents' commands run in it (`auto`)" if is_auto else f"sessions use `{settings.sandbox}`"
    if trouble is not None and is_auto:
        problem, _, remedy = trouble.partition("; hint: ")
        return finding.warn("sandbox", f"agents' commands run without a sandbox (`auto`): {problem}", remedy)
    if trouble is not None:
        problem, _, remedy = trouble.partition("; hint: ")
        if settings.sandbox == "bubblewrap":
            return finding.fail("sandbox", f"{chosen}, and {problem}", remedy)
        return finding.warn("sandbox", f"{chosen}; {problem}", remedy)
    if not is_auto and (other := sandbox.probe(settings.sandbox)) is not None:
        problem, _, remedy = other.partition("; hint: ")
        return finding.fail("sandbox", f"{chosen}, and {problem}", remedy)
    if (lack := sandbox.missing_filter()) is not None:
        return finding.warn("sandbox", f"bubblewrap works; {chosen}; {lack}", "use x86-64 or arm64 for the whole sandbox")
    return finding.ok("sandbox", f"bubblewrap works; {chosen}")


def _models(settings: config.Settings) -> Iterator[finding.Finding]:
    """As the running daemon lists them, which this shell's keys have just been handed to; else as one would that starts now."""
    try:
        known = Catalog(settings.models, os.environ, stored_keys=KeyStore(settings.folders.config), in_shell=True)
        listed = asyncio.run(_listed_by_daemon(settings)) if discover.holder(settings) else None
        offers = known.listings() if listed is None else listed
    except config.ConfigError as problem:
        yield finding.fail("models", problem.message, problem.hint)
        return
    sources = {one.name: one.key_source for one in offers if one.usable and one.key_source}
    named = ", ".join(f"{name} from {source}" for name, source in sources.items())
    yield finding.ok("model keys", named or "none was found")
    for one in offers:
        if one.name in settings.models and not one.usable:
            reason, _, remedy = one.reason.partition("; hint: ")
            yield finding.warn("models", f"`{one.name}`: {reason}", remedy or "see `tower models`")
    usable = [one.name for one in offers if one.usable and one.name != providers.DEMO]
    if usable and settings.provider == providers.DEMO:
        yield finding.warn(
            "models",
            f'`provider = "demo"` is configured, so {", ".join(usable)} is not used',
            "`tower config unset provider` lets the first usable model answer",
        )
    elif usable:
        yield finding.ok("models", f"usable: {', '.join(usable)}, demo")
    else:
        yield finding.warn(
            "models", "only the demo model can be used", "set a key such as `ANTHROPIC_API_KEY`, or run `tower login PROVIDER`"
        )
    if discover.needs_restart(settings):
        yield finding.warn("configuration", "the daemon was started before config.toml changed", "run `tower restart`")


async def _listed_by_daemon(settings: config.Settings) -> "list[workshop.ModelOffer] | None":
    """None when it does not answer."""
    try:
        async with await Client.connect(settings, start=False) as client:
            return [
                workshop.ModelOffer(
                    one.name, one.provider, one.model, usable=one.usable, reason=one.reason, key_source=one.keySource
                )
                for one in await client.models()
            ]
    except errors.ClientError:
        return None


def _servers(settings: config.Settings, *, deep: bool) -> Iterator[finding.Finding]:
    folder = Path.home() if Path.home().is_dir() else Path("/")
    found = probing.found(settings, folder)
    for problem in found.problems:
        reason, _, remedy = problem.partition("; hint: ")
        yield finding.warn("mcp", reason, remedy or f"correct {settings.mcp_file}")
    own = [one for one in found.servers if one.trusted]
    if not own:
        yield finding.ok("mcp", f"no servers in {settings.mcp_file}")
    elif not deep:
        yield finding.ok("mcp", f"{', '.join(one.name for one in own)}; `tower doctor --deep` starts them")
    else:
        for probed in asyncio.run(probing.probe_all(settings, folder)):
            if probed.tools is not None:
                yield finding.ok("mcp", f"{probed.name}: {len(probed.tools)} tools after {probed.seconds:.1f} s")
            else:
                problem, _, remedy = "; ".join(probed.told).partition("; hint: ")
                yield finding.fail("mcp", problem or "it cannot be had", remedy or f"try `tower mcp test {probed.name}`")


def _hub(settings: config.Settings, *, deep: bool) -> finding.Finding:
    if settings.hub is None:
        return finding.ok("hub", "none is dialled")
    if deep and (problem := _unreachable(settings.hub)) is not None:
        return finding.fail(
            "hub", f"{settings.hub} cannot be reached: {problem}", "see whether it runs, and whether a wall is between"
        )
    if not discover.holder(settings):
        return finding.ok("hub", f"{settings.hub}, dialled when the daemon runs")
    link = admin.peek(settings, "link")
    if not isinstance(link, dict) or not link.get("hub"):
        return finding.warn("hub", f"{settings.hub} is not dialled by the daemon that runs", "`tower stop`, and start it anew")
    detail = f"{link['hub']}, {link.get('phase')}"
    if link.get("phase") == _CONNECTED:
        return finding.ok("hub", detail)
    reason, _, remedy = str(link.get("problem") or "").partition("; hint: ")
    detail += f": {reason}" if reason else ""
    return finding.warn("hub", detail, remedy or "the daemon keeps dialling; see `tower logs`")


def _unreachable(hub: str) -> str | None:
    address = urlsplit(hub)
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname or "", port), timeout=_HUB_PATIENCE).close()
    except (OSError, ValueError) as problem:
        return getattr(problem, "strerror", None) or str(problem)
    return None
