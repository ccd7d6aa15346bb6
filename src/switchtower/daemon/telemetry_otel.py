"""Spans for an OpenTelemetry collector, by OpenTelemetry's own SDK. That is loaded only when an address is set, sends in a thread
of its own, and drops what a collector does not take."""

import asyncio
import contextlib
import importlib
import importlib.util
import logging
from typing import Any

from switchtower import config
from switchtower.daemon.apart import run_in_detached_thread
from switchtower.daemon.telemetry import Attributes

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
            raise config.ConfigError(
                SETTING, "your settings", "needs libraries that are not installed", hint="pip install 'switchtower[otel]'"
            )


def make_traces_url(endpoint: str) -> str:
    """An address that names a place is taken as it is; otherwise OTLP's own place is added."""
    base = endpoint.rstrip("/")
    return base if base.endswith("/v1/traces") else f"{base}/v1/traces"


class OtelSink:
    """Implements `telemetry.Sink`."""

    def __init__(self, endpoint: str, version: str) -> None:
        trace = importlib.import_module("opentelemetry.trace")
        sdk = importlib.import_module("opentelemetry.sdk.trace")
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        resources = importlib.import_module("opentelemetry.sdk.resources")
        otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        # A collector that is away would fill the log with every try.
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
        """Sends what is left, as long as that does not take long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await run_in_detached_thread(self._provider.shutdown, "traces")
