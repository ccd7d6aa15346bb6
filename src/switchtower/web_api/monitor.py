"""The monitor: whether the daemon is ready, or why not, and all metrics. It does not know which store it has.

It is cheap to call often: the store is not queried twice within a few seconds, and never for the journal's entries. For the
SQLite store it checks whether the file can be written, counts sessions by state and measures the size.
"""

import asyncio
import contextlib
import os
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from switchtower.core import errors, events
from switchtower.runtime import runtime
from switchtower.runtime.runtime import Runtime
from switchtower.stores.sqlite import inspection
from switchtower.stores.sqlite.inspection import SqliteAudit
from switchtower.telemetry import prometheus as shown
from switchtower.telemetry.metrics import BUCKETS, Metrics
from switchtower.transports.stream import Receiver
from switchtower.transports.unix import ListenerConnection

MIN_FREE_BYTES = 16 * 1_048_576


class SqliteStoreStatus:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.decisions = SqliteAudit(path)

    def list_unready_reasons(self) -> list[str]:
        reasons = []
        try:
            if not os.access(self._path, os.W_OK):
                reasons.append("the journal's file cannot be written")
            free = os.statvfs(self._path.parent)
            if free.f_bavail * free.f_frsize < MIN_FREE_BYTES:
                reasons.append("the journal's disk is full")
        except OSError:
            reasons.append("the journal's folder is gone")
        return reasons

    async def count_states(self) -> Mapping[str, int]:
        """Raises `JournalUnavailable`."""
        return await asyncio.to_thread(inspection.count_states, self._path)

    async def measure_size(self) -> int:
        """Returns the size in bytes, with the write-ahead log."""
        return sum(map(_measure_file, (self._path, self._path.with_name(f"{self._path.name}-wal"))))


def _measure_file(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


COUNT_INTERVAL = 5.0
"""Seconds between two counts of the sessions."""
_PROTOCOLS = ("push", "relay_app", "relay_host", "minicodex", "pi", "http")
_STATES = tuple(state.value for state in events.SessionState if state is not events.SessionState.DELETED)
_BREAKER_STATES = ("closed", "half_open", "open")
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_NODE_FIGURES: tuple[tuple[str, str, shown.Kind, str], ...] = (
    ("homes", "switchtower_node_homes", "gauge", "Sessions whose home is this node"),
    ("peers", "switchtower_node_peers", "gauge", "Other nodes that this one is connected to"),
    ("draining", "switchtower_node_draining", "gauge", "Whether this node gives its sessions away"),
    ("forwarded", "switchtower_node_forwarded_total", "counter", "Commands passed on to the home of their session"),
    ("followed", "switchtower_node_followed_batches_total", "counter", "Batches of other nodes read for clients of this one"),
    ("takeovers", "switchtower_node_takeovers_total", "counter", "Sessions taken over from nodes that fell silent or left"),
)
"""The metrics by the name under which the node counts them."""


class Monitor:
    """Implements `ports.MonitorPort`."""

    def __init__(
        self,
        metrics: Metrics,
        runtime: Runtime,
        version: str,
        connected: Callable[[], Iterable[ListenerConnection]],
        hub_linked: Callable[[], bool | None],
        *,
        check: Callable[[], list[str]],
        count_states: Callable[[], Awaitable[Mapping[str, int]]],
        journal_bytes: Callable[[], Awaitable[int]],
        node_name: str | None = None,
        node_figures: Callable[[], Mapping[str, float]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`check` returns the reasons why the store or the node should get no clients. `count_states` and `journal_bytes` query
        the store, and raise `JournalUnavailable`."""
        self._metrics = metrics
        self._runtime = runtime
        self._version = version
        self._connected = connected
        self._hub_linked = hub_linked
        self._check = check
        self._count_states = count_states
        self._journal_bytes = journal_bytes
        self._node_name = node_name
        self._node_figures = node_figures
        self._states: Mapping[str, int] = {}
        self._bytes = 0
        self._clock = clock
        self._counted_at = clock() - COUNT_INTERVAL
        self._counting = asyncio.Lock()

    def list_unready_reasons(self) -> list[str]:
        reasons = []
        if self._metrics.stopping:
            reasons.append("the daemon is stopping")
        if self._metrics.is_journal_failing:
            reasons.append("the journal could not store what it was given")
        return reasons + self._check()

    async def format_prometheus(self) -> str:
        return shown.format_text(await self._collect_families())

    async def collect_figures(self) -> dict[str, Any]:
        return shown.convert_to_json(await self._collect_families())

    async def _collect_families(self) -> list[shown.MetricFamily]:
        await self._count_sessions()
        return [
            *self._collect_sessions(self._states),
            *self._collect_journal(),
            *self._collect_clients(),
            *self._collect_models(),
            *self._collect_node(),
            *self._collect_process(),
        ]

    async def _count_sessions(self) -> None:
        async with self._counting:
            if self._clock() - self._counted_at >= COUNT_INTERVAL:
                with contextlib.suppress(errors.JournalUnavailable):  # the last count is still the best available
                    self._states = await self._count_states()
                    self._bytes = await self._journal_bytes()
                self._counted_at = self._clock()

    def _collect_sessions(self, states: Mapping[str, int]) -> Iterator[shown.MetricFamily]:
        vitals, now = self._metrics, runtime.collect_stats(self._runtime)
        counted = {state: states.get(state, 0) for state in _STATES}
        yield shown.make_labelled("switchtower_sessions", "gauge", "Sessions by state", "state", counted)
        pending = counted[events.SessionState.AWAITING_APPROVAL.value]
        yield shown.make_single("switchtower_approvals_pending", "gauge", "Approvals that wait for a decision", pending)
        yield shown.make_single("switchtower_approvals_requested_total", "counter", "Approvals asked for", vitals.approvals_asked)
        decided = {verdict.value: 0 for verdict in events.Verdict} | {"expired": 0} | vitals.decisions
        yield shown.make_labelled("switchtower_approvals_decided_total", "counter", "Decisions by verdict", "verdict", decided)
        yield shown.make_single("switchtower_runs_active", "gauge", "Runs that an engine works on", now.runs)
        yield shown.make_single("switchtower_runs_started_total", "counter", "Runs started here", vitals.runs_started)
        ended = {outcome.value: 0 for outcome in events.Outcome} | vitals.runs_ended
        yield shown.make_labelled("switchtower_runs_completed_total", "counter", "Runs ended here, by outcome", "outcome", ended)
        yield shown.make_single("switchtower_tool_calls_total", "counter", "Calls of tools", vitals.tool_calls)
        yield shown.make_single("switchtower_tool_errors_total", "counter", "Calls of tools that failed", vitals.tool_errors)
        yield shown.make_single("switchtower_lanes", "gauge", "Sessions in memory", now.lanes)
        yield shown.make_single(
            "switchtower_lane_waiting", "gauge", "Commands and events that wait for a lane's next turn", now.waiting
        )
        yield shown.make_single("switchtower_lane_waiting_max", "gauge", "The same, of the lane with the most", now.longest)
        yield shown.make_single("switchtower_subscribers", "gauge", "Cursors of clients in sessions", now.subscribers)
        yield shown.make_single("switchtower_subscribers_lagging", "gauge", "Cursors that page from the journal", now.lagging)

    def _collect_journal(self) -> Iterator[shown.MetricFamily]:
        vitals = self._metrics
        yield shown.make_single(
            "switchtower_events_journalled_total", "counter", "Events committed since the start", vitals.events
        )
        yield shown.make_histogram(
            "switchtower_commit_seconds",
            "How long commits take, of a sample of them",
            BUCKETS,
            vitals.commits.counts,
            vitals.commits.sum,
        )
        yield shown.make_single("switchtower_commit_failures_total", "counter", "Commits that failed", vitals.commit_failures)
        yield shown.make_single(
            "switchtower_journal_bytes", "gauge", "The journal's file and its log, or its database", self._bytes
        )

    def _collect_clients(self) -> Iterator[shown.MetricFamily]:
        clients: Counter[str] = Counter(dict.fromkeys(_PROTOCOLS, 0))
        waiting = 0
        for connected in self._connected():
            clients[get_protocol_label(connected.receiver)] += 1
            waiting += connected.waiting_bytes
        yield shown.make_labelled("switchtower_clients", "gauge", "Connections by protocol", "protocol", clients)
        yield shown.make_single("switchtower_output_waiting_bytes", "gauge", "Output that clients have not taken yet", waiting)
        yield shown.make_single("switchtower_hosts_online", "gauge", "Other hosts that are connected", clients["relay_host"])
        if (linked := self._hub_linked()) is not None:
            yield shown.make_single("switchtower_hub_linked", "gauge", "Whether the link to the hub stands", linked)

    def _collect_models(self) -> Iterator[shown.MetricFamily]:
        providers = self._metrics.providers
        breakers = {breaker.provider: breaker for breaker in self._runtime.host_services.list_breakers()}

        def each(name: str, help: str, value: Callable[[str], float]) -> shown.MetricFamily:
            return shown.make_labelled(name, "counter", help, "provider", {provider: value(provider) for provider in providers})

        yield each("switchtower_model_calls_total", "Answers of models, by provider", lambda name: providers[name].calls)
        tokens = [
            shown.MetricSample(count, (("provider", name), ("direction", direction)))
            for name, used in sorted(providers.items())
            for direction, count in (("input", used.input_tokens), ("output", used.output_tokens))
        ]
        yield shown.MetricFamily("switchtower_model_tokens_total", "counter", "Tokens by provider and direction", tokens)
        yield each("switchtower_model_cost_usd_total", "Cost as far as prices are known", lambda name: providers[name].cost)
        yield each("switchtower_model_retries_total", "Calls tried again, by provider", lambda name: providers[name].retries)
        failed = {name: breaker.failed for name, breaker in breakers.items()}
        yield shown.make_labelled(
            "switchtower_model_failures_total", "counter", "Calls that failed, by provider", "provider", failed
        )
        rejected = {name: breaker.rejected for name, breaker in breakers.items()}
        yield shown.make_labelled(
            "switchtower_breaker_rejected_total", "counter", "Calls that a breaker refused", "provider", rejected
        )
        standing = [
            shown.MetricSample(breaker.state.replace("-", "_") == state, (("provider", name), ("state", state)))
            for name, breaker in sorted(breakers.items())
            for state in _BREAKER_STATES
        ]
        yield shown.MetricFamily(
            "switchtower_breaker_state", "gauge", "1 for the state that a provider's breaker is in", standing
        )

    def _collect_node(self) -> Iterator[shown.MetricFamily]:
        """A single node has no such metrics."""
        if self._node_name is not None:
            yield shown.make_labelled(
                "switchtower_node_info", "gauge", "Always 1; the name is in its label", "node", {self._node_name: 1}
            )
        counted = self._node_figures() if self._node_figures is not None else {}
        for key, name, kind, help in _NODE_FIGURES:
            if key in counted:
                yield shown.make_single(name, kind, help, counted[key])

    def _collect_process(self) -> Iterator[shown.MetricFamily]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        yield shown.make_single("process_cpu_seconds_total", "counter", "CPU time of the daemon", used.ru_utime + used.ru_stime)
        yield shown.make_single("process_start_time_seconds", "gauge", "When the daemon started", self._metrics.started_at)
        with contextlib.suppress(OSError):  # systems without /proc
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_SIZE
            yield shown.make_single("process_resident_memory_bytes", "gauge", "Memory of the daemon", resident)
            yield shown.make_single("process_open_fds", "gauge", "Open files and sockets", len(os.listdir("/proc/self/fd")))  # noqa: PTH208
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit != resource.RLIM_INFINITY:
            yield shown.make_single("process_max_fds", "gauge", "How many may be open", limit)
        yield shown.make_labelled(
            "switchtower_build_info", "gauge", "Always 1; the version is in its label", "version", {self._version: 1}
        )


def get_protocol_label(receiver: Receiver | None) -> str:
    """Returns the label of a connection: `http` if it has no protocol."""
    label: str = getattr(receiver, "protocol", "http")
    return label
