"""Blocking work on a thread that an event loop can end. Every process that the work starts ends with it.

The work calls `check` wherever it has gone on for a while; a process that it waits for is killed, which ends the wait.
"""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TypeVar

from switchtower.tools.git.plumbing.unavailable import Unavailable
from switchtower.tools.running import orphans, patience, threads

T = TypeVar("T")

_LAST_WAIT = 5.0
"""For the work to notice. Only a read from a disk that does not answer takes longer; then the thread is left to itself."""


class Stopped(Exception):
    """The work was told to end."""


class Stop:
    def __init__(self, run_id: str | None = None) -> None:
        """With a run's id, its processes are found and ended after a crash of ours like any of the run."""
        self._mark = {orphans.MARKER: run_id} if run_id else {}
        self._lock = threading.Lock()
        self._stopped = False
        self._processes: set[subprocess.Popen[bytes]] = set()

    def check(self) -> None:
        if self._stopped:
            raise Stopped

    def now(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._processes:
                _kill(process)

    @contextmanager
    def process(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A process that does not outlive the block, nor this stop."""
        with self._lock:
            self.check()
            process = subprocess.Popen(  # noqa: S603 - always git, found by us, with arguments of ours
                argv, cwd=cwd, env={**env, **self._mark}, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
            )
            self._processes.add(process)
        try:
            yield process
        finally:
            with self._lock:
                self._processes.discard(process)
                _kill(process)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
            process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


async def on_thread(work: Callable[[Stop], T], seconds: float, *, run_id: str | None = None, hint: str) -> T:
    """Runs the work on a thread. Cancelled or out of time, it is stopped before this raises."""
    stop = Stop(run_id)
    task = asyncio.create_task(threads.call(work, stop))
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.shield(task)
    except (TimeoutError, asyncio.CancelledError) as error:
        stop.now()
        await patience.to_the_end(_settled(task))
        if isinstance(error, TimeoutError):
            raise Unavailable(f"it took longer than {seconds:g} seconds", hint=hint) from None
        raise


async def _settled(task: "asyncio.Task[T]") -> None:
    done, _ = await asyncio.wait([task], timeout=_LAST_WAIT)
    if done and not task.cancelled():
        task.exception()  # seen: it was told to fail
