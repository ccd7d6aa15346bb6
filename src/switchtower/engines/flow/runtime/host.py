"""A process that executes one run. The run has its own thread and event loop; a poll comes from another thread and is answered at
once.
"""

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from switchtower.engines.flow.runtime import event_buffer, failures, run
from switchtower.engines.flow.runtime.kinds import port, registry

if TYPE_CHECKING:
    import asyncio

    from switchtower.engines.flow.runtime import executor

_LAST_WAIT = 20.0
"""The seconds that a cancelled run has to end everything that it started."""


class FlowRunHost:
    """Starts to execute as soon as it is made."""

    def __init__(
        self,
        document: Mapping[str, Any],
        inputs: Mapping[str, Any],
        *,
        run_id: str,
        workspace: str,
        allow_shell: bool = False,
        tower: port.SessionSteps | None = None,
        kinds: registry.KindRegistry | None = None,
        concurrency: int = 4,
    ) -> None:
        """Raises `failures.FlowRejected` for a flow that cannot be executed here; nothing has started then."""
        self.run_id = run_id
        flow = run.load_flow(document)
        setting = port.StepEnvironment(
            run_id=run_id,
            workspace=workspace,
            events=event_buffer.EventBuffer(),
            allow_shell=allow_shell,
            policy=flow.policy,
            tower=tower,
        )
        self._run = run.FlowRunState(flow, run.resolve_inputs(flow, inputs), kinds or registry.KindRegistry(), setting)
        self._concurrency = concurrency
        self._execution: executor.FlowExecution | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_cancelled = False
        self._thread = threading.Thread(target=self._execute, name="flow", daemon=True)
        self._thread.start()

    def poll(self) -> bytes:
        """Returns the progress and the events since the last poll, as JSON. It never waits."""
        return self._run.encode_poll()

    def cancel(self) -> None:
        """Cancels the run without waiting for its end."""
        self._is_cancelled = True
        if self._loop is not None and self._execution is not None:
            with suppress(RuntimeError):  # the loop is closed: the run is over
                self._loop.call_soon_threadsafe(self._execution.cancel)

    def close(self) -> bool:
        """Cancels the run and waits for its end; returns whether it ended."""
        self.cancel()
        self._thread.join(_LAST_WAIT)
        return not self._thread.is_alive()

    def _execute(self) -> None:
        if self._is_cancelled:
            self._run.end(failures.make_cancelled())
            return
        self._run.begin()
        if not self._run.is_over:
            import asyncio

            asyncio.run(self._continue())

    async def _continue(self) -> None:
        """Runs the steps that have to wait. The executor is imported only now: many flows have no such steps."""
        import asyncio

        from switchtower.engines.flow.runtime import executor

        self._execution = executor.FlowExecution(self._run, concurrency=self._concurrency)
        self._loop = asyncio.get_running_loop()
        if self._is_cancelled:
            self._execution.cancel()
        await self._execution.execute()
