"""Programs that we run to look at something, such as git or ripgrep: chosen by us and never by a model, and short.

They run on a thread and are read there. Whoever waits for them holds the leash and can end them from outside, together
with all that they started. What a model asks to run belongs to `processes`.
"""

import asyncio
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TypeVar

from switchtower.tools import concurrency
from switchtower.tools.processes import orphans, proc

_CHUNK = 64 * 1024
_LONGEST_COMPLAINT = 4 * 1024
_LAST_WAIT = 5.0
_END_TIMEOUT = 0.8

T = TypeVar("T")


class HelperCancelled(Exception):
    """The leash was pulled: nobody waits for the answer any more."""


class HelperProgram:
    """One that is running, or has ended and been read to its end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._complaint = b""

    @property
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None, "whoever talks to it has asked for that"
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """For a conversation. What only talks is read with `output`; never both."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def exit_code(self) -> int:
        """Waits for its end."""
        return proc.wait_for_exit_code(self._process.pid)

    @property
    def error_text(self) -> str:
        """The end of what it said on its error channel: the reason comes last."""
        return self._complaint.decode(errors="replace").strip()

    def read_output(self) -> Iterator[bytes]:
        """As it comes, to its end. The error channel is read beside it, so that neither waits for the other."""
        with selectors.DefaultSelector() as ready:
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    ready.register(pipe, selectors.EVENT_READ)
            while ready.get_map():
                for key, _ in ready.select():
                    chunk = os.read(key.fd, _CHUNK)
                    if not chunk:
                        ready.unregister(key.fileobj)
                    elif key.fileobj is self._process.stdout:
                        yield chunk
                    else:
                        self._complaint = (self._complaint + chunk)[-_LONGEST_COMPLAINT:]

    def end(self) -> None:
        _kill_group(self._process)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WAIT)


class CancelScope:
    def __init__(self, run_id: str | None = None) -> None:
        """With a run's id, its programs are found and ended after a crash of ours like any process of the run."""
        self._mark = {orphans.MARKER: run_id} if run_id else {}
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._is_cancelled = False

    def raise_if_cancelled(self) -> None:
        """Raises `Stopped` once the leash was pulled. For work that goes on for a while without a program."""
        if self._is_cancelled:
            raise HelperCancelled

    @contextmanager
    def start_program(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int = subprocess.PIPE,
    ) -> Iterator[HelperProgram]:
        """Raises `OSError` when there is no such program. Whatever happens, it has ended afterwards."""
        with self._lock:
            self.raise_if_cancelled()
            process = subprocess.Popen(  # noqa: S603 - our own choice of program, and no shell
                list(argv),
                cwd=cwd,
                env={**env, **self._mark},
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
            self._processes.add(process)
        program = HelperProgram(process)
        try:
            yield program
            self.raise_if_cancelled()
        finally:
            with self._lock:
                self._processes.discard(process)
            program.end()

    def cancel(self) -> None:
        """Ends what is running and lets nothing start any more. From any thread, as often as you like."""
        with self._lock:
            self._is_cancelled = True
            for process in self._processes:
                _kill_group(process)


async def run_in_cancel_scope(run_id: str | None, work: Callable[[CancelScope], T], *, timeout_s: float = _END_TIMEOUT) -> T:
    """Does the work on a thread. When this is cancelled, what the work was running is ended at once, and the work is waited
    for a moment. Only a read from a disk that does not answer takes longer; such a thread is left to itself."""
    leash = CancelScope(run_id)
    working = asyncio.create_task(concurrency.run_in_thread(work, leash))
    try:
        await asyncio.wait([working])
    except asyncio.CancelledError:
        leash.cancel()
        await concurrency.run_to_completion(_wait_for_end(working, timeout_s))
        raise
    return working.result()


async def _wait_for_end(working: "asyncio.Task[T]", timeout_s: float) -> None:
    await asyncio.wait([working], timeout=timeout_s)
    if not working.cancel() and not working.cancelled():
        working.exception()  # seen, so that asyncio does not report it as forgotten


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
