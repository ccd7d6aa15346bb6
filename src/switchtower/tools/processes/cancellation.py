"""Runs helper programs, such as git or ripgrep: they are short, and chosen by us, never by a model.

They run and are read on a thread. The caller holds a `CancelScope` and can end them from outside, together with every process
that they started. Commands that a model requests belong to `commands`.
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
    """The scope was cancelled: the caller no longer waits for the result."""


class HelperProgram:
    """A helper program that is running, or has ended and been read to its end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._complaint = b""

    @property
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None, "whoever talks to it has asked for that"
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """The output stream for a dialogue. A program that only prints is read with `read_output`; never use both."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def exit_code(self) -> int:
        """Waits for its end and returns its exit code."""
        return proc.wait_for_exit_code(self._process.pid)

    @property
    def error_text(self) -> str:
        """The end of its error output: the reason comes last."""
        return self._complaint.decode(errors="replace").strip()

    def read_output(self) -> Iterator[bytes]:
        """Yields the output until it ends. The error stream is read concurrently, so that neither blocks the other."""
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
        """With a run's id, the programs are found and ended after a crash of the daemon like any process of the run."""
        self._mark = {orphans.MARKER: run_id} if run_id else {}
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._is_cancelled = False

    def raise_if_cancelled(self) -> None:
        """Raises `HelperCancelled` once the scope was cancelled, for long work without a program."""
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
        """Raises `OSError` when the program does not exist. The program has always ended afterwards."""
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
        """Ends the running programs and prevents new ones. It may be called from any thread, any number of times."""
        with self._lock:
            self._is_cancelled = True
            for process in self._processes:
                _kill_group(process)


async def run_in_cancel_scope(run_id: str | None, work: Callable[[CancelScope], T], *, timeout_s: float = _END_TIMEOUT) -> T:
    """Does the work on a thread. When this is cancelled, the programs of the work are ended at once, and this waits for the work
    briefly. Only a read from a disk that does not respond takes longer; such a thread is abandoned.
    """
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
        working.exception()  # retrieved, so that asyncio does not report it as never retrieved


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
