"""Runs as traces: which spans there are, what is in them, and what never is."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.crash.tower_process import DaemonDidNotStart
from tests.daemon.conftest import Connect, StartDaemon
from tests.web_server.receiver import WebhookReceiver

from switchtower.core import events
from switchtower.core.session import Session
from switchtower.settings.sources import ConfigError
from switchtower.telemetry import traces

ACTOR = events.Actor(name="ada", via="web")
SECRET = "the words of a prompt"


class RecordedSpan:
    def __init__(self, name: str, parent: "RecordedSpan | None", at_ns: int, attributes: traces.Attributes) -> None:
        self.name = name
        self.parent = parent
        self.begun_ns = at_ns
        self.ended_ns: int | None = None
        self.attributes = dict(attributes)
        self.problem: str | None = None


class SpanRecorder:
    """Implements `telemetry.Sink`."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []

    def begin(self, name: str, parent: Any, at_ns: int, attributes: traces.Attributes) -> Any:
        self.spans.append(RecordedSpan(name, parent, at_ns, attributes))
        return self.spans[-1]

    def end(self, span: Any, at_ns: int, attributes: traces.Attributes, *, problem: str | None = None) -> None:
        assert span.ended_ns is None, "a span ends once"
        span.ended_ns, span.problem = at_ns, problem
        span.attributes.update(attributes)

    def find_spans(self, name: str) -> list[RecordedSpan]:
        return [span for span in self.spans if span.name == name]


class TelemetryHarness:
    def __init__(self) -> None:
        self.recorder = SpanRecorder()
        self.now_ns = 0
        self.tracer = traces.Tracer(self.recorder, lambda: self.now_ns)
        self.session = Session(id="sess_1", engine="agent", provider="demo")

    def record_events(self, *seen: events.AnyEvent) -> None:
        for event in seen:
            self.now_ns += 1_000
            self.tracer.on_event(self.session, event)


@pytest.fixture
def telemetry_harness() -> TelemetryHarness:
    return TelemetryHarness()


def make_approval(call_id: str = "call_1") -> events.Approval:
    return events.Approval(
        id="appr_1",
        call_id=call_id,
        kind="run",
        title=SECRET,
        summary=SECRET,
        details={"tool": "run", "command": SECRET},
        expires_at_ms=1,
        fingerprint="f",
    )


WHOLE_RUN: tuple[events.AnyEvent, ...] = (
    events.RunStarted(SECRET, ACTOR),
    events.PhaseChanged("Thinking"),
    events.UsageReported("demo", "demo-1", 10, 20, cost=0.5),
    events.ToolCalled("call_1", "run", {"command": SECRET}),
    events.ApprovalRequested(make_approval()),
    events.ApprovalDecided("appr_1", events.Verdict.APPROVE, ACTOR, comment=SECRET),
    events.PhaseChanged("Executing tool", "run"),
    events.ToolFinished("call_1", "run", 12, SECRET),
    events.PhaseChanged("Thinking"),
    events.UsageReported("demo", "demo-1", 30, 40),
    events.RunCompleted(events.Outcome.SUCCESS, SECRET, 0),
)


def test_a_run_is_a_trace_with_its_calls_and_waits_inside(telemetry_harness: TelemetryHarness) -> None:
    telemetry_harness.record_events(*WHOLE_RUN)
    (run,) = telemetry_harness.recorder.find_spans("run")
    models = telemetry_harness.recorder.find_spans("model call")
    (tool,) = telemetry_harness.recorder.find_spans("tool call")
    (wait,) = telemetry_harness.recorder.find_spans("approval")
    assert run.parent is None
    assert [span.parent for span in (*models, tool)] == [run] * 3
    assert wait.parent is tool
    assert (run.begun_ns, run.ended_ns) == (1_000, 11_000)
    assert [(span.begun_ns, span.ended_ns) for span in models] == [(2_000, 3_000), (9_000, 10_000)]
    assert (tool.begun_ns, wait.begun_ns, wait.ended_ns, tool.ended_ns) == (4_000, 5_000, 6_000, 8_000)
    assert [span.problem for span in telemetry_harness.recorder.spans] == [None] * 5
    assert models[0].attributes["gen_ai.usage.output_tokens"] == 20
    assert models[0].attributes["switchtower.cost_usd"] == 0.5
    assert wait.attributes["switchtower.decision"] == "approve"
    assert run.attributes["switchtower.outcome"] == "success"


def test_nothing_that_was_said_is_in_a_span(telemetry_harness: TelemetryHarness) -> None:
    telemetry_harness.record_events(*WHOLE_RUN)
    for span in telemetry_harness.recorder.spans:
        assert SECRET not in str(span.attributes)


def test_what_a_run_leaves_open_ends_with_it(telemetry_harness: TelemetryHarness) -> None:
    telemetry_harness.record_events(*WHOLE_RUN[:2], *WHOLE_RUN[3:5], events.RunCompleted(events.Outcome.FAILED, SECRET, 1))
    assert all(span.ended_ns is not None and span.problem for span in telemetry_harness.recorder.spans)
    assert len(telemetry_harness.recorder.spans) == 4


def test_a_failed_call_and_a_failed_tool_are_marked(telemetry_harness: TelemetryHarness) -> None:
    telemetry_harness.record_events(
        *WHOLE_RUN[:2],
        events.RetryScheduled(2, 5, 100, SECRET),
        events.PhaseChanged("Thinking"),
        *WHOLE_RUN[2:4],
        events.ToolFinished("call_1", "run", 1, SECRET, is_error=True, error=events.ToolError("TIMEOUT", SECRET)),
        WHOLE_RUN[-1],
    )
    assert [span.problem is not None for span in telemetry_harness.recorder.find_spans("model call")] == [True, False]
    (tool,) = telemetry_harness.recorder.find_spans("tool call")
    assert tool.problem == "TIMEOUT"
    assert SECRET not in str([span.problem for span in telemetry_harness.recorder.spans])


@pytest.mark.parametrize(
    ("end", "word"),
    [(events.ApprovalExpired("appr_1"), "expired"), (events.ApprovalWithdrawn("appr_1", "the run ended"), "withdrawn")],
)
def test_an_approval_that_nobody_decides_ends_too(telemetry_harness: TelemetryHarness, end: events.AnyEvent, word: str) -> None:
    telemetry_harness.record_events(*WHOLE_RUN[:5], end)
    (wait,) = telemetry_harness.recorder.find_spans("approval")
    assert wait.attributes["switchtower.decision"] == word


def test_what_belongs_to_no_run_or_to_another_host_makes_no_span(telemetry_harness: TelemetryHarness) -> None:
    telemetry_harness.record_events(*WHOLE_RUN[1:])
    assert telemetry_harness.recorder.spans == []
    telemetry_harness.session.host = "host_1"
    telemetry_harness.record_events(*WHOLE_RUN)
    assert telemetry_harness.recorder.spans == []


def test_runs_and_calls_without_an_end_are_bounded(telemetry_harness: TelemetryHarness) -> None:
    telemetry_harness.record_events(
        WHOLE_RUN[0], *(events.ToolCalled(f"call_{n}", "run", {}) for n in range(traces.MAX_OPEN + 10))
    )
    assert len(telemetry_harness.recorder.find_spans("tool call")) == traces.MAX_OPEN
    for number in range(traces.MAX_RUNS + 10):
        telemetry_harness.session = Session(id=f"sess_{number}", engine="agent", provider="demo")
        telemetry_harness.record_events(WHOLE_RUN[0])
    assert sum(span.ended_ns is None for span in telemetry_harness.recorder.find_spans("run")) == traces.MAX_RUNS


# The exporter


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
        ("https://otel.example/tenant", "https://otel.example/tenant/v1/traces"),
        ("https://otel.example/v1/traces", "https://otel.example/v1/traces"),
    ],
)
def test_the_collector_s_place_is_added_where_it_is_not_named(endpoint: str, url: str) -> None:
    assert traces.make_traces_url(endpoint) == url


def is_installed() -> bool:
    try:
        traces.check_installed()
    except ConfigError:
        return False
    return True


@pytest.mark.skipif(is_installed(), reason="the extra `otel` is installed")
async def test_without_its_libraries_the_daemon_says_what_to_install(start_daemon_process: StartDaemon) -> None:
    with pytest.raises(DaemonDidNotStart) as refused:
        await start_daemon_process(telemetry_otlp_endpoint="http://127.0.0.1:4318")
    assert "telemetry_otlp_endpoint" in str(refused.value)
    assert "pip install 'switchtower[otel]'" in str(refused.value)
    assert "Traceback" not in str(refused.value)


@pytest.fixture
async def collector(receiver: WebhookReceiver) -> WebhookReceiver:
    if not is_installed():
        pytest.skip("the extra `otel` is not installed")
    return receiver


async def test_a_collector_gets_the_spans_of_a_run(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path, collector: WebhookReceiver
) -> None:
    daemon = await start_daemon_process(telemetry_otlp_endpoint=collector.url)
    client = await connect(daemon)
    session_id = await client.start_session(workspace)
    await client.send(session_id, f"run: echo {SECRET}")
    asked = await client.wait_for_event("approval_required", session_id=session_id)
    await client.decide(session_id, str(asked.runId), asked.content["approvalId"])
    await client.wait_for_event("run_complete", session_id=session_id)
    assert await daemon.stop() == 0, "what is left is sent at the end"
    sent = b"".join(got.body for got in await collector.wait_for_requests())
    assert {got.path for got in collector.got} == {"/v1/traces"}
    for name in (b"run", b"model call", b"tool call", b"approval", b"switchtower"):
        assert name in sent
    assert SECRET.encode() not in sent


async def test_a_collector_that_never_answers_holds_up_nothing(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path, collector: WebhookReceiver
) -> None:
    collector.silent = True
    daemon = await start_daemon_process(telemetry_otlp_endpoint=collector.url)
    client = await connect(daemon)
    session_id = await client.start_session(workspace)
    await client.send(session_id, "say: hello")
    await client.wait_for_event("run_complete", session_id=session_id)
    async with asyncio.timeout(60):
        assert await daemon.stop() == 0
