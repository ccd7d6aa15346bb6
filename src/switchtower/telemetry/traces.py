"""Runs as traces: a span for each run, and in it one for each model call, tool call and wait for a decision. They are made from
committed events. No text of users or models is in a span: only names, counts, outcomes and ids.

OpenTelemetry's own SDK exports the spans to a collector. It is loaded only when an address is set, sends in a separate thread,
and drops spans that a collector does not take.
"""

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from switchtower.core import events
from switchtower.core.fold import summarize_approval
from switchtower.core.session import Session
from switchtower.settings.sources import ConfigError
from switchtower.tools.concurrency import run_in_detached_thread

MAX_RUNS = 10_000
MAX_OPEN = 1_000
"""Calls of one run that are open."""
THINKING = "Thinking"
"""The phase in which an agent calls its model."""
MAX_ATTRIBUTE_LENGTH = 200

Attributes = Mapping[str, str | int | float | bool]


class SpanSink(Protocol):
    """The receiver of spans. Times are nanoseconds since 1970."""

    def begin(self, name: str, parent: Any, at_ns: int, attributes: Attributes) -> Any: ...

    def end(self, span: Any, at_ns: int, attributes: Attributes, *, problem: str | None = None) -> None: ...


class _TracedRun:
    def __init__(self, span: Any) -> None:
        self.span = span
        self.tools: dict[str, Any] = {}
        self.approvals: dict[str, Any] = {}
        self.model: Any = None


class Tracer:
    def __init__(self, sink: SpanSink, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._sink = sink
        self._now_ns = now_ns
        self._runs: dict[str, _TracedRun] = {}
        """Per session, which has one run at a time."""

    def on_event(self, session: Session, event: events.AnyEvent) -> None:
        """The runtime's watcher."""
        if session.host is not None:
            return  # that host traces it
        now_ns = self._now_ns()
        if isinstance(event, events.RunStarted):
            self._begin_run(session, event, now_ns)
            return
        run = self._runs.get(session.id)
        if run is None:
            return
        match event:
            case events.PhaseChanged(phase=phase) if phase == THINKING:
                self._end_model(run, now_ns, {}, "superseded")
                attributes = {"gen_ai.provider.name": session.provider, "gen_ai.request.model": session.model or ""}
                run.model = self._sink.begin("model call", run.span, now_ns, attributes)
            case events.UsageReported():
                used: dict[str, str | int | float | bool] = {
                    "gen_ai.provider.name": event.provider,
                    "gen_ai.response.model": event.model[:MAX_ATTRIBUTE_LENGTH],
                    "gen_ai.usage.input_tokens": event.input_tokens,
                    "gen_ai.usage.output_tokens": event.output_tokens,
                }
                if event.cost is not None:
                    used["switchtower.cost_usd"] = event.cost
                self._end_model(run, now_ns, used, None)
            case events.RetryScheduled():
                self._end_model(run, now_ns, {"switchtower.attempt": event.attempt}, "failed, and tried again")
            case events.ToolCalled() if len(run.tools) < MAX_OPEN:
                attributes = {"gen_ai.tool.name": event.tool[:MAX_ATTRIBUTE_LENGTH], "gen_ai.tool.call.id": event.call_id}
                run.tools[event.call_id] = self._sink.begin("tool call", run.span, now_ns, attributes)
            case events.ToolFinished() if (span := run.tools.pop(event.call_id, None)) is not None:
                problem = (event.error.type if event.error else "failed") if event.is_error else None
                self._sink.end(span, now_ns, {"switchtower.duration_ms": event.duration_ms}, problem=problem)
            case events.ApprovalRequested() if len(run.approvals) < MAX_OPEN:
                asked = event.approval
                parent = run.tools.get(asked.call_id, run.span)
                attributes = {
                    "switchtower.approval.kind": asked.kind,
                    "gen_ai.tool.name": summarize_approval(asked).tool[:MAX_ATTRIBUTE_LENGTH],
                }
                run.approvals[asked.id] = self._sink.begin("approval", parent, now_ns, attributes)
            case events.ApprovalDecided():
                told = {"switchtower.decision": event.verdict.value, "switchtower.via": event.by.via}
                self._end_approval(run, event.approval_id, now_ns, told)
            case events.ApprovalExpired():
                self._end_approval(run, event.approval_id, now_ns, {"switchtower.decision": "expired"})
            case events.ApprovalWithdrawn():
                self._end_approval(run, event.approval_id, now_ns, {"switchtower.decision": "withdrawn"})
            case events.RunCompleted():
                self._close(session.id, now_ns, event.outcome)
            case _:
                pass

    def _begin_run(self, session: Session, event: events.RunStarted, now_ns: int) -> None:
        self._close(session.id, now_ns, None)
        while len(self._runs) >= MAX_RUNS:
            self._close(next(iter(self._runs)), now_ns, None)
        attributes: dict[str, str | int | float | bool] = {
            "switchtower.session.id": session.id,
            "switchtower.engine": session.engine,
            "switchtower.purpose": event.purpose.value,
            "switchtower.headless": event.headless,
            "gen_ai.provider.name": session.provider,
        }
        self._runs[session.id] = _TracedRun(self._sink.begin("run", None, now_ns, attributes))

    def _close(self, session_id: str, now_ns: int, outcome: events.Outcome | None) -> None:
        run = self._runs.pop(session_id, None)
        if run is None:
            return
        self._end_model(run, now_ns, {}, "the run ended")
        for span in (*run.approvals.values(), *run.tools.values()):
            self._sink.end(span, now_ns, {}, problem="the run ended")
        word = "unknown" if outcome is None else outcome.value
        failed = outcome in (None, events.Outcome.FAILED)
        self._sink.end(run.span, now_ns, {"switchtower.outcome": word}, problem=word if failed else None)

    def _end_model(self, run: _TracedRun, now_ns: int, attributes: Attributes, problem: str | None) -> None:
        if run.model is not None:
            self._sink.end(run.model, now_ns, attributes, problem=problem)
            run.model = None

    def _end_approval(self, run: _TracedRun, approval_id: str, now_ns: int, attributes: Attributes) -> None:
        if (span := run.approvals.pop(approval_id, None)) is not None:
            self._sink.end(span, now_ns, attributes)


SETTING = "telemetry_otlp_endpoint"
_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")
_CLOSING_SECONDS = 5.0
_TIMEOUT_SECONDS = 10


def check_installed() -> None:
    """Raises `ConfigError`."""
    for module in _NEEDED:
        try:
            found = importlib.util.find_spec(module)
        except ImportError:
            found = None
        if found is None:
            raise ConfigError(
                SETTING, "your settings", "needs libraries that are not installed", hint="pip install 'switchtower[otel]'"
            )


def make_traces_url(endpoint: str) -> str:
    """Returns an address with a path unchanged; otherwise OTLP's own path is added."""
    base = endpoint.rstrip("/")
    return base if base.endswith("/v1/traces") else f"{base}/v1/traces"


class OtelSink:
    """Implements `SpanSink`."""

    def __init__(self, endpoint: str, version: str) -> None:
        trace = importlib.import_module("opentelemetry.trace")
        sdk = importlib.import_module("opentelemetry.sdk.trace")
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        resources = importlib.import_module("opentelemetry.sdk.resources")
        otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        # An unavailable collector would fill the log with every attempt.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        resource = resources.Resource.create({"service.name": "switchtower", "service.version": version})
        self._provider: Any = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = otlp.OTLPSpanExporter(endpoint=make_traces_url(endpoint), timeout=_TIMEOUT_SECONDS)
        self._provider.add_span_processor(export.BatchSpanProcessor(exporter))
        self._tracer: Any = self._provider.get_tracer("switchtower", version)
        self._trace: Any = trace

    def begin(self, name: str, parent: Any, at_ns: int, attributes: Attributes) -> Any:
        context = None if parent is None else self._trace.set_span_in_context(parent)
        return self._tracer.start_span(name, context=context, start_time=at_ns, attributes=dict(attributes))

    def end(self, span: Any, at_ns: int, attributes: Attributes, *, problem: str | None = None) -> None:
        span.set_attributes(dict(attributes))
        if problem is not None:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, problem))
        span.end(end_time=at_ns)

    async def close(self) -> None:
        """Sends the remaining spans, within a time limit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await run_in_detached_thread(self._provider.shutdown, "traces")
