"""Drives one run on any runtime: capabilities, start, polls, events, and the end, whatever the runtime does. It does not know
what a flow is, nor where a project keeps its runtime.

A run always has a `FlowRunOutcome`, and nothing is left of the runtime by then. Each event is handed on as it arrives, and kept.
When there are too many, only the first and the last stay in memory, and those left out are counted.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from msgspec import Raw, Struct, structs

from switchtower.protocols.rep import client as rep_client
from switchtower.protocols.rep import errors, messages
from switchtower.protocols.rep.runtime_process import RuntimeNotStarted

RunEvent = dict[str, Any]
OnRunEvent = Callable[[RunEvent], Awaitable[None] | None]
"""Gets each event, in order. Its result is awaited, and meanwhile the runtime is not polled."""

MAX_EVENTS = 100_000
MAX_BYTES = 64 * 1024 * 1024


class EventCollector:
    def __init__(self, on_event: OnRunEvent | None = None, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._on_event = on_event
        self._max_kept = max_events // 2
        self._max_kept_bytes = max_bytes // 2
        self._first: list[RunEvent] = []
        self._first_bytes = 0
        self._is_first_full = False
        self._last: deque[tuple[RunEvent, int]] = deque()
        self._last_bytes = 0
        self.left_out = 0
        self.last_failed: RunEvent | None = None
        """The last `step` event that reports a failure."""

    async def add(self, events: list[RunEvent], wire_bytes: int) -> None:
        """Adds the events of one poll; `wire_bytes` is their total length on the wire."""
        each = wire_bytes // len(events) if events else 0
        for event in events:
            self._keep(event, each)
            if event.get("type") == "step" and event.get("state") == "failed":
                self.last_failed = event
            if self._on_event is not None and (handed := self._on_event(event)) is not None:
                await handed

    def list_kept(self) -> list[RunEvent]:
        return [*self._first, *(event for event, _ in self._last)]

    def _keep(self, event: RunEvent, size: int) -> None:
        if not self._is_first_full and len(self._first) < self._max_kept and self._first_bytes + size <= self._max_kept_bytes:
            self._first.append(event)
            self._first_bytes += size
            return
        self._is_first_full = True  # a small one after a big one must not overtake it
        self._last.append((event, size))
        self._last_bytes += size
        while len(self._last) > self._max_kept or self._last_bytes > self._max_kept_bytes:
            self._last_bytes -= self._last.popleft()[1]
            self.left_out += 1


TIMEOUT = 120.0
CANCEL_GRACE = 5.0
_MIN_POLL_INTERVAL, _MAX_POLL_INTERVAL, _POLL_BACKOFF = 0.001, 0.05, 1.5
_HANG_FRACTION = 0.2
"""The part of a cancel's grace for which a due answer is awaited before `Cancel` is sent anyway."""
_STEP_EXIT_GRACE = 0.2
"""Seconds for the runtime of a delegated step to exit by itself: the flow waits for it."""

OnCapabilities = Callable[[dict[str, Any]], None]
"""Gets the capabilities that the runtime reported, acceptable or not, so that they can be inspected later."""
AdaptFlow = Callable[[dict[str, Any], frozenset[str]], dict[str, Any] | None]
"""Returns the same flow for a runtime that lacks these control kinds, or None when it cannot do without them."""

CheckFlow = Callable[[dict[str, Any]], str | None]
"""Returns what is wrong with a flow; it is called before any runtime is started."""

RunStep = Callable[[dict[str, Any], str], Awaitable[Mapping[str, Any]]]
"""Runs a flow of one node of the given kind to its end, on a separate runtime."""
DriveControl = Callable[
    [RunStep, asyncio.Event, Callable[[list[dict[str, Any]], int], Awaitable[None]]], Awaitable[Mapping[str, Any]]
]
"""Drives a flow for a runtime that lacks control kinds: it delegates the flow step by step, gives up when the event is set, hands
on events with their length as JSON, and returns the status and the summary."""


class RuntimeRunOrder(Struct, frozen=True, kw_only=True):
    """The parameters of a run. `required` is the set of step kinds that the flow uses."""

    argv: Sequence[str]
    cwd: str
    ir: dict[str, Any]
    required: Collection[str]
    run_id: str
    trace_id: str
    engine: str = "proc"
    inputs: dict[str, Any] = {}
    allow_shell: bool = False
    log_json: bool = False
    timeout_s: float = TIMEOUT
    cancel_grace_s: float = CANCEL_GRACE
    exit_grace_s: float = rep_client.GRACE
    """Seconds for the runtime to exit by itself once its run is over."""
    environment: Mapping[str, str] | None = None
    process_mark: str | None = None
    """The mark of the runtime's processes, for a caller that manages many of them; by default they have the run's own mark and
    end with it."""

    def make_environment(self) -> rep_client.RuntimeEnvironment:
        return rep_client.RuntimeEnvironment(
            run_id=self.run_id,
            trace_id=self.trace_id,
            timeout_s=self.timeout_s,
            allow_shell=self.allow_shell,
            log_json=self.log_json,
        )


_NO_EVENTS = Raw(b"null")


class _PollResult(Struct, frozen=True):
    """The required fields of a poll. Deployed runtimes leave out, or set to null, the fields that they do not use."""

    status: messages.Status
    events: Raw = _NO_EVENTS
    """Decoding is left for later, because the length is needed."""
    summary: dict[str, Any] | None = None


async def drive_run(
    order: RuntimeRunOrder,
    *,
    cancel: asyncio.Event | None = None,
    on_event: OnRunEvent | None = None,
    on_capabilities: OnCapabilities | None = None,
    adapt: AdaptFlow | None = None,
    check: CheckFlow | None = None,
    drive_control: DriveControl | None = None,
    kill: asyncio.Event | None = None,
) -> rep_client.FlowRunOutcome:
    """Drives the run. Setting `cancel` cancels it, and so does cancelling the task, which then stays cancelled. Cancelling the
    task of a run that was cancelled already, or setting `kill`, ends the runtime at once. An error that `on_event` raises ends
    the run and is raised here."""
    if check is not None and (problem := check(order.ir)) is not None:
        return rep_client.make_invalid(_get_flow_name(order.ir), problem)
    driving = _RunDriver(
        order,
        cancel or asyncio.Event(),
        kill or asyncio.Event(),
        EventCollector(on_event),
        on_capabilities,
        adapt,
        drive_control,
    )
    try:
        driving.client = rep_client.RuntimeClient.start(
            order.argv,
            cwd=order.cwd,
            runtime_environment=order.make_environment(),
            environment=order.environment,
            process_mark=order.process_mark,
        )
    except RuntimeNotStarted as problem:
        return driving.make_failure(rep_client.make_error(errors.RepErrorCode.BROKEN_TRANSPORT, str(problem)))
    graceful = False
    try:
        ended = await driving.run()
        graceful = not driving.was_cancelled
        return ended
    finally:
        await driving.client.aclose(grace_s=order.exit_grace_s if graceful else 0)


class _RunDriver:
    client: rep_client.RuntimeClient

    def __init__(
        self,
        order: RuntimeRunOrder,
        cancel: asyncio.Event,
        kill: asyncio.Event,
        collector: EventCollector,
        on_capabilities: OnCapabilities | None,
        adapt: AdaptFlow | None,
        drive_control: DriveControl | None,
    ) -> None:
        self._order = order
        self._cancel = cancel
        self._kill = kill
        self._collector = collector
        self._on_capabilities = on_capabilities
        self._adapt = adapt
        self._drive_control = drive_control
        self._summary: dict[str, Any] = {}
        self._run_id: str | None = None
        self._is_directed = False
        """Each step is a separate run on a separate runtime, with its driver."""
        self._is_starting = False
        self._cancel_sent = False
        self.was_cancelled = False
        """The runtime was ended before it finished."""

    async def run(self) -> rep_client.FlowRunOutcome:
        work = asyncio.create_task(self._drive())
        cancelled = asyncio.create_task(self._cancel.wait())
        # rep 3.1: the engine timeout counts from the start of the runtime.
        try:
            await asyncio.wait([work, cancelled], timeout=self._order.timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and cancelled.done():
                await self._wait_for_cancel(work)
        except asyncio.CancelledError:
            if self._cancel.is_set():
                self._kill.set()
            self._cancel.set()
            await self._wait_for_cancel(work)
            raise
        finally:
            cancelled.cancel()
            self.was_cancelled = await _cancel_task(work)
        return self._make_cancelled_outcome() if self.was_cancelled else work.result()

    async def _wait_for_cancel(self, work: "asyncio.Task[rep_client.FlowRunOutcome]") -> None:
        """rep 10: the run is cancelled once, and then it has five seconds. Before a run was requested there is nothing to cancel.
        A runtime that hangs with an answer due is sent the `Cancel` anyway: another of its threads may read it."""
        if self._is_starting and not self._kill.is_set():
            hurried = asyncio.create_task(self._kill.wait())
            first = self._order.cancel_grace_s * _HANG_FRACTION
            try:
                done, _ = await asyncio.wait([work, hurried], timeout=first, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    self._cancel_hanging_run()
                    rest = self._order.cancel_grace_s - first
                    await asyncio.wait([work, hurried], timeout=rest, return_when=asyncio.FIRST_COMPLETED)
            finally:
                hurried.cancel()

    def _cancel_hanging_run(self) -> None:
        if not self._cancel_sent and not self._is_directed:
            self._cancel_sent = True
            # A start that has no answer yet has at least the id that was requested.
            self.client.send_out_of_turn(messages.CANCEL, messages.RunRef(self._run_id or self._order.run_id))

    def _make_cancelled_outcome(self) -> rep_client.FlowRunOutcome:
        if self._cancel.is_set():
            message = "the run was cancelled before it began"
            if self._is_starting:
                message = f"the run was cancelled; the runtime did not stop within {self._order.cancel_grace_s:g} s and was ended"
            return self.make_failure(rep_client.make_error(errors.RepErrorCode.BROKEN_TRANSPORT, message, cause="Cancelled"))
        message = (
            f"the run took longer than the engine timeout of {self._order.timeout_s:g} s and was ended; "
            "hint: allow more with `--timeout`"
        )
        return self.make_failure(rep_client.make_error(errors.RepErrorCode.BROKEN_TRANSPORT, message, cause="Timeout"))

    async def _drive(self) -> rep_client.FlowRunOutcome:
        try:
            ir = await self._negotiate()
            if ir is None:
                return await self._run_step_by_step()
            await self._start(ir)
            return await self._poll_until_done()
        except rep_client.RuntimeUnsuitable as problem:
            return self.make_failure(problem.error)
        except rep_client.RuntimeRequestError as refused:
            return self.make_failure(rep_client.convert_runtime_error(refused.code, refused.message, refused.data))
        except rep_client.RuntimeConnectionError as broken:
            cause: rep_client.FailureCause | None = "Cancelled" if self._cancel.is_set() else None
            return self.make_failure(rep_client.make_error(broken.code, broken.message, details=broken.details, cause=cause))

    async def _negotiate(self) -> dict[str, Any] | None:
        """Returns the flow as this runtime can run it; None when it can run it only step by step."""
        order = self._order
        answer = await self.client.call(messages.CAPABILITIES, {}, object)
        if self._on_capabilities is not None and isinstance(answer, dict):
            self._on_capabilities(answer)
        offer = rep_client.parse_capabilities(answer, engine=order.engine)
        lacking = rep_client.find_missing_kinds(offer, order.required)
        if lacking and lacking <= set(messages.CONTROL_KINDS):
            adapted = self._adapt(order.ir, lacking) if self._adapt is not None else None
            if adapted is not None or self._drive_control is not None:
                return adapted
        rep_client.check_capabilities(offer, order.required, engine=order.engine)
        return order.ir

    async def _run_step_by_step(self) -> rep_client.FlowRunOutcome:
        assert self._drive_control is not None
        self._is_starting = self._is_directed = True
        # rep 3: a runtime is a process for each run, and now each step is a run. This one has reported its capabilities.
        await self.client.aclose(grace_s=_STEP_EXIT_GRACE)
        told = await self._drive_control(self._run_delegated_step, self._cancel, self._collector.add)
        self._summary = told["summary"]
        return self._make_ended("completed" if told["status"] == "completed" else "failed")

    async def _run_delegated_step(self, ir: dict[str, Any], kind: str) -> Mapping[str, Any]:
        # rep 5.2: an id is a UUID, even that of a part of a run.
        order = structs.replace(
            self._order, ir=ir, required=[kind], run_id=str(uuid4()), exit_grace_s=min(_STEP_EXIT_GRACE, self._order.exit_grace_s)
        )
        return (await drive_run(order, kill=self._kill)).make_report()

    async def _start(self, ir: dict[str, Any]) -> None:
        order = self._order
        self._is_starting = True
        options = messages.RunOptions(order.run_id, order.trace_id, order.allow_shell)
        started = await self.client.call(messages.START_RUN, messages.StartRun(ir, order.inputs, options), messages.Started)
        self._run_id = started.run_id

    async def _poll_until_done(self) -> rep_client.FlowRunOutcome:
        reference = messages.RunRef(self._run_id)
        pause = _MIN_POLL_INTERVAL
        while True:
            if self._cancel.is_set() and not self._cancel_sent:
                self._cancel_sent = True
                pause = _MIN_POLL_INTERVAL
                with suppress(rep_client.RuntimeRequestError):  # a run that cannot be cancelled is ended when its time is up
                    await self.client.call(messages.CANCEL, reference, object)
            polled = await self._poll(reference)
            events = await self._handle_poll(polled)
            match polled.status:
                case "completed":
                    return self._make_ended("completed")
                case "failed":
                    return self._make_ended("failed")
            pause = _MIN_POLL_INTERVAL if events else min(pause * _POLL_BACKOFF, _MAX_POLL_INTERVAL)
            await self._sleep(pause, until_cancelled=not self._cancel_sent)

    async def _poll(self, reference: messages.RunRef) -> _PollResult:
        try:
            return await self.client.call(messages.POLL, reference, _PollResult)
        except rep_client.RuntimeRequestError as refused:
            if refused.code != errors.INVALID_PARAMS:
                raise
            # rep 4: these are the params of the document, so the two do not speak the same protocol.
            raise self.client.reject(
                f"refuses `{messages.POLL}` for the run that it has started: {refused.message[:200]}"
            ) from None

    async def _handle_poll(self, polled: _PollResult) -> int:
        if polled.summary is not None:
            self._summary = polled.summary
        size = len(memoryview(polled.events))
        events = self.client.convert_result(polled.events, list[dict[str, Any]]) if polled.events != _NO_EVENTS else []
        for event in events:
            # rep 7: both are required of every event.
            if absent := [name for name in ("type", "timestamp") if not isinstance(event.get(name), str) or not event[name]]:
                raise self.client.reject(f"reported an event without {' and '.join(f'`{name}`' for name in absent)}")
        await self._collector.add(events, size)
        return len(events)

    async def _sleep(self, pause: float, *, until_cancelled: bool) -> None:
        if not until_cancelled:
            await asyncio.sleep(pause)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._cancel.wait()

    def _make_ended(self, status: rep_client.OutcomeStatus) -> rep_client.FlowRunOutcome:
        if status == "completed":
            return self._make_outcome(status, self._summary)
        if self._cancel_sent:
            return self.make_failure(self._make_cancelled_summary(rep_client.parse_error(self._summary.get("error"))))
        reported = rep_client.parse_error(self._summary.get("error"))
        if reported is None and self._collector.last_failed is not None:
            reported = rep_client.parse_error(self._collector.last_failed.get("error"))
        if reported is None:
            cause: rep_client.FailureCause | None = "Cancelled" if self._cancel.is_set() else None
            reported = rep_client.make_error(
                errors.RepErrorCode.STEP_FAILED, "the run failed; the runtime gave no reason", cause=cause
            )
        return self.make_failure(reported)

    def _make_cancelled_summary(self, reported: dict[str, Any] | None) -> dict[str, Any]:
        """A cancelled run has one error, and so one exit code, whatever error the runtime reports."""
        if (
            reported is not None
            and reported["code"] == errors.RepErrorCode.BROKEN_TRANSPORT
            and reported["data"].get("cause") == "Cancelled"
        ):
            return reported
        details = {} if reported is None else {"error": reported}
        return rep_client.make_error(
            errors.RepErrorCode.BROKEN_TRANSPORT, "the run was cancelled", details=details, cause="Cancelled"
        )

    def make_failure(self, error: dict[str, Any]) -> rep_client.FlowRunOutcome:
        counts = {"completed_steps": 0, "failed_steps": 0}
        return self._make_outcome("failed", {**counts, **self._summary, "error": error})

    def _make_outcome(self, status: rep_client.OutcomeStatus, summary: dict[str, Any]) -> rep_client.FlowRunOutcome:
        return rep_client.FlowRunOutcome(
            flow=_get_flow_name(self._order.ir),
            status=status,
            summary=summary,
            events=self._collector.list_kept(),
            events_left_out=self._collector.left_out,
        )


def _get_flow_name(ir: dict[str, Any]) -> str:
    head = ir.get("flow")
    name = head.get("name") if isinstance(head, dict) else None
    return name if isinstance(name, str) else ""


async def _cancel_task(work: "asyncio.Task[rep_client.FlowRunOutcome]") -> bool:
    """Cancels the work. Returns whether it was still running."""
    if work.done():
        return False
    work.cancel()
    await asyncio.wait([work])
    if not work.cancelled():
        work.exception()  # retrieved, so that asyncio does not report it as never retrieved
    return work.cancelled()
