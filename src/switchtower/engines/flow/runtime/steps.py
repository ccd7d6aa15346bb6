"""One node of a run, from its first attempt to its last: its parameters are resolved, its kind runs within a time limit, it is
retried after a pause when that can help, and each attempt is reported. The executor handles what follows from its end.
"""

import time
from collections.abc import Coroutine, Mapping
from typing import Any

from switchtower.engines.flow import ir
from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.runtime import event_buffer, failures, values
from switchtower.engines.flow.runtime.kinds import port

MOST_OUTPUTS = 4 * 1024 * 1024
"""The most bytes that one step may put out, as JSON: the response to a poll has to fit in a line."""


class StepExecution:
    def __init__(
        self,
        node: ir.FlowNode,
        kind: port.StepKind,
        scope: values.ReferenceValues,
        setting: port.StepEnvironment,
        *,
        first_attempt: int = 0,
    ) -> None:
        self.node = node
        self._first_attempt = first_attempt
        self._kind = kind
        self._scope = scope
        self._setting = setting
        self._open: tuple[int, float] | None = None
        """The attempt that has started and not ended, and when it started."""

    @property
    def is_instant(self) -> bool:
        """True when the step never waits, neither in its kind nor between two attempts, so that it needs no event loop."""
        may_retry = self.node.retry.max > 0 and self.node.kind not in flows.CONTROL_KINDS
        return getattr(self._kind, "instant", False) and not may_retry

    @property
    def is_waiting_only(self) -> bool:
        """True when its kind only waits for others, so that it does not count against the limit of concurrent steps."""
        return getattr(self._kind, "patient", False)

    def run_instant(self) -> Mapping[str, Any] | failures.StepFailure:
        """Does `run` for an instant step. It has one attempt: a step that waits for nothing would fail in the same way again."""
        self._setting.events.add_step(self.node.id, "started", 0)
        began = time.monotonic()
        try:
            ended: Mapping[str, Any] | failures.StepFailure = _check_outputs(_run_instantly(self._run_kind(0)))
        except failures.StepFailed as failed:
            ended = self._make_failure(0, str(failed), retriable=False, details=failed.details)
        except Exception as error:
            ended = self._make_panic(0, error)
        self._report_end(ended, 0, began)
        return ended

    async def run(self) -> Mapping[str, Any] | failures.StepFailure:
        """Returns the outputs, or the failure of the last attempt. Raises nothing but a cancellation."""
        import asyncio

        attempt = self._first_attempt
        while True:
            self._setting.events.add_step(self.node.id, "started", attempt)
            began = time.monotonic()
            self._open = attempt, began
            ended = await self._attempt(attempt)
            if self._open is not None:  # its end has not been reported yet
                self._report_end(ended, attempt, began)
            self._open = None
            if not isinstance(ended, failures.StepFailure) or not ended.retriable or attempt >= self.node.retry.max:
                return ended
            attempt += 1
            await asyncio.sleep(self.node.retry.backoff_ms / 1000)

    def interrupt(self, why: str, cause: str) -> bool:
        """Reports the end of an attempt that could not finish; returns whether there was one."""
        if self._open is None:
            return False
        attempt, began = self._open
        self._open = None
        message = event_buffer.clip_text(f"the step was ended: {why}")
        failure = failures.StepFailure(code=failures.STOPPED, message=message, step_id=self.node.id, attempt=attempt, cause=cause)
        self._report_end(failure, attempt, began)
        return True

    async def _attempt(self, attempt: int) -> Mapping[str, Any] | failures.StepFailure:
        import asyncio

        limit = asyncio.timeout(self.node.timeout_ms / 1000 or None)
        try:
            async with limit:
                outputs = await self._run_kind(attempt)
            return _check_outputs(outputs)
        except failures.StepFailed as failed:
            return self._make_failure(attempt, str(failed), retriable=failed.retriable, details=failed.details)
        except TimeoutError as error:
            if not limit.expired():
                return self._make_panic(attempt, error)
            message = f"the step took longer than {self.node.timeout_ms} ms"
            return self._make_failure(attempt, message, retriable=True, cause=failures.TIMEOUT)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._make_panic(attempt, error)  # the kind cancelled itself, without a request
        except Exception as error:
            return self._make_panic(attempt, error)

    async def _run_kind(self, attempt: int) -> Any:
        given: Mapping[str, Any] = self.node.params
        if self.node.kind != flows.SWITCH:
            # An output of the flow that refers to a skipped step is null; a step that needs the value cannot be done.
            given = self._scope.resolve(given, skipped_is_null=self.node.kind == flows.EMIT)
        return await self._kind.run(given, port.StepContext(self._setting, self.node.id, attempt))

    def _report_end(self, ended: Mapping[str, Any] | failures.StepFailure, attempt: int, began: float) -> None:
        more: dict[str, Any] = {"duration_ms": int((time.monotonic() - began) * 1000)}
        if isinstance(ended, failures.StepFailure):
            self._setting.events.add_step(self.node.id, "failed", attempt, {**more, "error": ended.to_error_object()})
        else:
            self._setting.events.add_step(self.node.id, "succeeded", attempt, {**more, "outputs": ended})

    def _make_failure(
        self,
        attempt: int,
        message: str,
        *,
        retriable: bool,
        details: Mapping[str, Any] | None = None,
        cause: str | None = None,
    ) -> failures.StepFailure:
        return failures.StepFailure(
            code=failures.STEP_FAILED,
            message=event_buffer.clip_text(message),
            step_id=self.node.id,
            attempt=attempt,
            retriable=retriable,
            details=_limit_details(details or {}),
            cause=cause,
        )

    def _make_panic(self, attempt: int, error: BaseException) -> failures.StepFailure:
        message = f"the kind `{self.node.kind[:100]}` broke with {type(error).__name__}; hint: the traceback is on stderr"
        return failures.make_panic(error, message=message, step_id=self.node.id, attempt=attempt)


def _run_instantly(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise RuntimeError("a kind that calls itself instant waits for something")


def _check_outputs(outputs: Any) -> Mapping[str, Any]:
    if not isinstance(outputs, Mapping):
        raise failures.StepFailed("its outputs are not names and values")
    try:
        size = len(event_buffer.encode_json(outputs))
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise failures.StepFailed("its outputs cannot be said in JSON") from None
    if size > MOST_OUTPUTS:
        raise failures.StepFailed(f"its outputs are larger than {MOST_OUTPUTS // 1024**2} MiB")
    return outputs


def _limit_details(details: Mapping[str, Any]) -> dict[str, Any]:
    try:
        is_small = len(event_buffer.encode_json(details)) <= 64 * 1024
    except (TypeError, ValueError, OverflowError, RecursionError):
        is_small = False
    return dict(details) if is_small else {"left_out": "the details are too large or not JSON"}
