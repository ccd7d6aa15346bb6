"""The metrics of the running daemon: cheap enough to be always on. The monitor presents them.

Labels are our own words or names from the configuration: never an id, a path or anything that a client chose.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from switchtower.core import errors, events
from switchtower.core.ports import journal, session_service
from switchtower.core.session import Session

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds in seconds."""
SPACING = 0.001
"""Seconds between two measurements of a commit: a busy journal makes tens of thousands a second."""
FAILURE_MEMORY_SECONDS = 10.0
"""A journal that failed is retried by the next command, so the daemon must become ready again after this many seconds."""
MAX_PROVIDERS = 64


_COUNTED = frozenset(
    {
        events.ApprovalDecided,
        events.ApprovalExpired,
        events.ApprovalRequested,
        events.RetryScheduled,
        events.RunCompleted,
        events.RunStarted,
        events.ToolCalled,
        events.ToolFinished,
        events.UsageReported,
    }
)
"""This set is checked first: a `match` over all events takes a microsecond, and most events are not in it."""


class Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.sum += seconds
        for place, bound in enumerate(BUCKETS):
            if seconds <= bound:
                self.counts[place] += 1
                return
        self.counts[-1] += 1

    @property
    def count(self) -> int:
        return sum(self.counts)


class ProviderMetrics:
    """The usage and the cost of one provider's models."""

    def __init__(self) -> None:
        self.calls = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost = 0.0
        self.retries = 0


class Metrics:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.started_at = time.time()
        self.stopping = False
        self.events = 0
        self.commits = Histogram()
        self.commit_failures = 0
        self.runs_started = 0
        self.runs_ended: Counter[str] = Counter()
        self.decisions: Counter[str] = Counter()
        self.approvals_asked = 0
        self.tool_calls = 0
        self.tool_errors = 0
        self.providers: dict[str, ProviderMetrics] = {}
        self._failed_at: float | None = None

    @property
    def is_journal_failing(self) -> bool:
        """Returns whether the journal recently failed to store something."""
        return self._failed_at is not None and self._clock() - self._failed_at < FAILURE_MEMORY_SECONDS

    # The runtime's watcher

    def on_batch(self, session: Session, batch: session_service.Batch) -> None:
        self.events += len(batch.entries)

    def on_event(self, session: Session, event: events.AnyEvent) -> None:
        if type(event) not in _COUNTED or session.host is not None:
            return  # events of another host are counted there
        match event:
            case events.ToolCalled():
                self.tool_calls += 1
            case events.ToolFinished():
                self.tool_errors += event.is_error
            case events.UsageReported():
                used = self._get_provider(event.provider)
                used.calls += 1
                used.input_tokens += event.input_tokens
                used.output_tokens += event.output_tokens
                used.cost += event.cost or 0.0
            case events.RetryScheduled():
                self._get_provider(session.provider).retries += 1
            case events.RunStarted():
                self.runs_started += 1
            case events.RunCompleted():
                self.runs_ended[event.outcome.value] += 1
            case events.ApprovalRequested():
                self.approvals_asked += 1
            case events.ApprovalDecided():
                self.decisions[event.verdict.value] += 1
            case events.ApprovalExpired():
                self.decisions["expired"] += 1
            case _:
                pass

    def _get_provider(self, name: str) -> ProviderMetrics:
        if name not in self.providers and len(self.providers) >= MAX_PROVIDERS:
            name = "other"
        return self.providers.setdefault(name, ProviderMetrics())

    # The journal

    def wrap_journal(self, store: journal.Journal) -> journal.Journal:
        """Returns the same journal, with its commits measured."""
        return cast(journal.Journal, _MeteredJournal(store, self))

    def record_commit(self, since: float, commit: "asyncio.Future[None]") -> None:
        if commit.cancelled():
            return
        problem = commit.exception()
        if problem is None:
            self.commits.add(self._clock() - since)
            self._failed_at = None
        elif isinstance(problem, errors.JournalUnavailable):
            self.commit_failures += 1
            self._failed_at = self._clock()


class _MeteredJournal:
    """Forwards everything; only appends are measured."""

    def __init__(self, store: journal.Journal, metrics: Metrics) -> None:
        self._store = store
        self._append = store.append
        self._metrics = metrics
        self._clock = metrics._clock
        self._next = 0.0

    def __getattr__(self, name: str) -> Any:
        """Each attribute is looked up once, and then kept here."""
        passed_on = getattr(self._store, name)
        setattr(self, name, passed_on)
        return passed_on

    def append(self, append: journal.Append) -> Any:
        stored = self._append(append)
        since = self._clock()
        if since >= self._next:
            self._next = since + SPACING
            if isinstance(stored, asyncio.Future):
                stored.add_done_callback(lambda commit: self._metrics.record_commit(since, commit))
        return stored
