"""The composition root: every part is made here, joined, started and stopped in order. Only this module knows all others.

The daemon's log has one line an entry, with secrets redacted whichever part wrote them, in a file that does not grow without
bound.
"""

import asyncio
import contextlib
import ctypes
import gc
import logging
import logging.handlers
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from switchtower import __version__, config
from switchtower.accounts import credentials
from switchtower.accounts.authenticators import ConnectionAuthenticator
from switchtower.core import errors, redact
from switchtower.core.ports import host_services, journal
from switchtower.daemon import lazy_parts
from switchtower.daemon import pi as daemon_pi
from switchtower.daemon.home import AlreadyRunning, DaemonEndpoints, DaemonHome
from switchtower.daemon.lazy_parts import LazyAgent, LazySearch
from switchtower.daemon.listeners import Listeners
from switchtower.daemon.pi import LazyPiServer, PiListeners, PiServerPort
from switchtower.daemon.relay import LazyRelay, WebFeatures
from switchtower.runtime.lane_items import RuntimeLimits
from switchtower.runtime.runtime import Runtime
from switchtower.settings.sources import ConfigError, describe_home_error
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.telemetry.metrics import Metrics
from switchtower.tools.processes import marks
from switchtower.transports.stream import CannotListen

if TYPE_CHECKING:
    from switchtower.daemon.cluster import ClusterComposition, LocalNode
    from switchtower.daemon.pi import StdioDescriptors


MAX_BYTES = 5_000_000
KEPT_FILES = 3


class RedactingFormatter(logging.Formatter):
    """Redacts the finished line, so that tracebacks and other libraries' messages are covered too."""

    def __init__(self, redactor: redact.Redactor) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact_text(super().format(record))


def configure_logging(path: Path, level: str, redactor: redact.Redactor) -> None:
    file = logging.handlers.RotatingFileHandler(path, maxBytes=MAX_BYTES, backupCount=KEPT_FILES, delay=True)
    path.touch(mode=0o600)
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.handlers.clear()
    file.setFormatter(RedactingFormatter(redactor))
    root.addHandler(file)


log = logging.getLogger(__name__)

DAY_MS = 86_400_000
HOUR_MS = 3_600_000

Announce = Callable[[DaemonEndpoints], None]

_PR_SET_DUMPABLE = 4


class DaemonStartError(Exception):
    """The daemon did not start; the text has the cause, and a remedy if there is one."""


def run_daemon(settings: config.Settings, announce: Announce | None = None, *, stdio: "StdioDescriptors | None" = None) -> int:
    """Runs the daemon until it is stopped. `announce` gets the addresses at which it listens. Raises `DaemonStartError`.

    With `stdio` it also speaks pi there, and stops when that input ends.
    """
    _protect_memory()
    # The writer thread needs the interpreter lock a few times a commit; the default of 5 ms would be ten commits long.
    sys.setswitchinterval(0.0005)
    home = DaemonHome(settings)
    try:
        _check_hub(settings)
        credentials.check_credentials(settings.data_dir, marks.get_full_environment())
        home.claim()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, home, announce, stdio))
    except (AlreadyRunning, CannotListen, ConfigError, errors.CoreError) as problem:
        raise DaemonStartError(str(problem)) from problem
    except OSError as problem:
        message, hint = describe_home_error(problem, settings.data_dir)
        raise DaemonStartError(f"{message}; hint: {hint}") from problem
    finally:
        home.release()
    return 0


def _protect_memory() -> None:
    """Protects the daemon's memory, keys included, from the other processes of its user: an agent's commands have its uid.

    It is called once, before a secret is read. From then on only root can read this process's memory and environment, attach a
    debugger to it or list its files, and it leaves no core dump. Programs that it starts are as readable as any.
    """
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        log.warning("other processes may read this one's memory: %s", os.strerror(ctypes.get_errno()))
    # The hard limit stays, because programs inherit it and some want their own core dumps.
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def _check_hub(settings: config.Settings) -> None:
    if settings.hub is None or settings.insecure_hub:
        return
    from switchtower.protocols.relay.settings import is_unencrypted

    if is_unencrypted(settings.hub):
        raise ConfigError(
            "hub",
            "the settings",
            f"`{settings.hub}` is another machine and has no TLS: all on the way could read the token and give orders",
            hint="use `https://`, or set `insecure_hub` (`--insecure-hub`) where you trust that network",
        )


def keep_ignored_signals_from_programs() -> None:
    """A signal that this process's parent ignored (`nohup`, a script's `&`) would be ignored by every program that is started
    here. A handler that does nothing ignores it too, and a started program has the default again."""
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # `subprocess` resets these
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


async def _serve(
    settings: config.Settings, home: DaemonHome, announce: Announce | None, stdio: "StdioDescriptors | None"
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    keep_ignored_signals_from_programs()
    redactor = redact.Redactor(extra=settings.redaction_extra)
    configure_logging(settings.log_path, settings.log_level, redactor)

    async with contextlib.AsyncExitStack() as stack:
        node = await _open_node(settings, home, redactor, stack)
        token = home.load_owner_token() if node is None else node.owner_token
        redactor.add_secret(token)
        store = await _open_journal(settings, node, stack)
        agent = LazyAgent(settings, redactor)
        marks.withhold_variables(agent.secret_variables)
        stack.push_async_callback(agent.close)
        found: journal.Search = LazySearch(settings.journal_path) if node is None else node.search
        stack.push_async_callback(found.close)
        vitals = Metrics()
        runtime = _make_runtime(settings, vitals.wrap_journal(store), found, redactor, agent, node)
        stack.push_async_callback(runtime.stop)
        runtime.watch(agent.on_event, owned_only=True)
        runtime.watch(vitals.on_event, owned_only=True)
        runtime.watch_batches(vitals.on_batch, owned_only=True)
        if settings.hub is not None:
            runtime.undelivered = lambda: None  # until the link is loaded and can report it
        await runtime.start()
        if node is not None:
            await node.join(runtime)
            stack.push_async_callback(node.leave)
        doorkeeper = ConnectionAuthenticator(token, attach_token_required=settings.attach_token_required, find_run=agent.find_run)
        house = LazyPiServer(runtime, settings, __version__)
        among = _compose_cluster(node, house, settings)
        reception: Callable[[], PiServerPort] = house.get if among is None else lambda: among.pi
        pi = PiListeners(settings, reception, doorkeeper, port_required=stdio is not None)
        page = WebFeatures(settings, runtime, doorkeeper, vitals, __version__, node)
        shared = None if among is None else among.shared
        relay = LazyRelay(settings, runtime, doorkeeper, redactor, token, __version__, page, shared=shared)
        stack.push_async_callback(relay.close)
        listeners = Listeners(settings, runtime, doorkeeper, pi, relay, __version__)
        stack.push_async_callback(listeners.close, settings.shutdown_timeout)
        page.connected = listeners.list_connections
        if among is not None:
            among.set_clients(listeners, relay)
        await _start_notifications(settings, runtime, redactor, page, stack, node)
        await listeners.open()
        endpoints = DaemonEndpoints(
            pid=os.getpid(),
            socket=str(settings.socket),
            http=listeners.http_url,
            pi=pi.url,
            pi_socket=pi.socket,
            hostd_socket=str(settings.host_socket),
            token=token,
            version=__version__,
            started_at_ms=time.time_ns() // 1_000_000,
            file_state=settings.file_state,
            options=settings.options,
            listening=listeners.bound_addresses,
        )
        home.write_endpoints(endpoints)
        await listeners.serve_socket()
        log.info("listening on %s, http %s, pi %s", endpoints.socket, endpoints.http or "off", endpoints.pi or "off")
        if announce is not None:
            # A reader of the announcement may log in once; the owner's own token is for files that only the owner reads.
            announce(msgspec.structs.replace(endpoints, token=page.visits.issue()[0]))
        if stdio is not None:
            from switchtower.daemon.pi import StdioPiClient

            own_client = StdioPiClient(stdio, settings, reception(), cwd=daemon_pi.get_working_directory(), ended=stop.set)
            own_client.open()
            stack.push_async_callback(own_client.close)
        await agent.load()
        await house.load()
        await listeners.open_host_socket()
        if among is not None:
            await among.load_relay(relay, stop)
        elif settings.hub is not None or settings.registry_path.exists():
            await relay.get_parts()  # to connect to a hub, or to track hosts; otherwise the first client can wait for it
        gc.freeze()  # objects loaded by now stay, and need not be scanned again
        gc.enable()
        await stop.wait()
        vitals.stopping = True
        log.info("stopping")
        # Clients first get the shutdown, then the ends of their runs, before they are disconnected.
        if among is None:
            await house.shut_down(settings.shutdown_timeout)
            await runtime.stop()
        else:
            await among.shut_down_pi()
            await runtime.stop()
            await among.leave_cluster()


async def _open_node(
    settings: config.Settings, home: DaemonHome, redactor: redact.Redactor, stack: contextlib.AsyncExitStack
) -> "LocalNode | None":
    """Opens what a node of a cluster needs; a single daemon does not load it."""
    if settings.store is None:
        return None
    from switchtower.daemon import cluster

    node = await cluster.open_node(settings, home, redactor, __version__)
    stack.push_async_callback(node.close)
    return node


async def _open_journal(settings: config.Settings, node: "LocalNode | None", stack: contextlib.AsyncExitStack) -> journal.Journal:
    if node is not None:
        return node.journal
    store = SqliteJournal(settings.journal_path)
    await store.open()
    stack.push_async_callback(store.close)
    return store


def _compose_cluster(node: "LocalNode | None", server: LazyPiServer, settings: config.Settings) -> "ClusterComposition | None":
    if node is None:
        return None
    from switchtower.daemon.cluster import ClusterComposition

    return ClusterComposition(node, server, settings)


def _make_host_services(local: host_services.HostServices, node: "LocalNode | None") -> host_services.HostServices:
    if node is None:
        return local
    from switchtower.daemon import cluster

    return cluster.make_node_host_services(node, local)


async def _start_notifications(
    settings: config.Settings,
    runtime: Runtime,
    redactor: redact.Redactor,
    web: WebFeatures,
    stack: contextlib.AsyncExitStack,
    node: "LocalNode | None",
) -> None:
    """Starts notifications and traces, if they are configured; otherwise their modules are not loaded. Raises `ConfigError`."""
    if settings.web_push or settings.notify_webhook:
        from switchtower.notifications import notifier as notifications_notifier

        web.web_push = notifications_notifier.make_web_push(settings, None if node is None else node.secrets)
        if (notifier := notifications_notifier.make_notifier(settings, runtime, redactor, web.web_push)) is not None:
            stack.push_async_callback(notifier.close)
    if settings.telemetry_otlp_endpoint is not None:
        from switchtower.telemetry import traces

        traces.check_installed()
        sink = await asyncio.to_thread(traces.OtelSink, settings.telemetry_otlp_endpoint, __version__)
        stack.push_async_callback(sink.close)
        runtime.watch(traces.Tracer(sink).on_event, owned_only=True)


def _make_runtime(
    settings: config.Settings,
    store: journal.Journal,
    search_: journal.Search,
    redactor: redact.Redactor,
    agent: LazyAgent,
    node: "LocalNode | None",
) -> Runtime:
    flows = lazy_parts.LazyFlowEngine(settings)
    runtime = Runtime(
        store,
        {"agent": agent.engine, "pty": lazy_parts.LazyTerminalEngine(settings), "flow": flows},
        _make_host_services(agent.host_services, node),
        redactor=redactor,
        search_=search_,
        ownership=None if node is None else node.homes,
        approval_timeout_ms=int(settings.approval_timeout * 1_000),
        receipt_ttl_ms=int(settings.receipt_ttl_hours * HOUR_MS),
        limits=RuntimeLimits(stop_grace=settings.shutdown_timeout),
        retention=journal.Retention(settings.retention_entries, int(settings.retention_days * DAY_MS)),
    )
    flows.service = runtime
    return runtime
