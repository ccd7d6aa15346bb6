"""Programs that we run to look at something, such as git or ripgrep: short, read-only, chosen by us and never by a model.

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
from typing import TypeVar

from switchtower.tools.running import orphans, threads

_CHUNK = 64 * 1024
_LONGEST_COMPLAINT = 4 * 1024
_LAST_WAIT = 5.0
_PATIENCE = 0.8

T = TypeVar("T")


class Stopped(Exception):
    """The leash was pulled: nobody waits for the answer any more."""


class Program:
    """One that is running, or has ended and been read to its end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._complaint = bytearray()

    @property
    def exit_code(self) -> int:
        """Waits for its end without reaping it: until that, its pid cannot become anybody else's."""
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        return ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status

    @property
    def complaint(self) -> str:
        """What it said on its error channel, as far as that is worth reading."""
        return self._complaint.decode(errors="replace").strip()

    def output(self) -> Iterator[bytes]:
        """As it comes, to its end. The error channel is read beside it, so that neither waits for the other."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            ready.register(self._process.stderr, selectors.EVENT_READ)
            while ready.get_map():
                for key, _ in ready.select():
                    chunk = os.read(key.fd, _CHUNK)
                    if not chunk:
                        ready.unregister(key.fileobj)
                    elif key.fileobj is self._process.stdout:
                        yield chunk
                    else:
                        self._complaint += chunk[: _LONGEST_COMPLAINT - len(self._complaint)]

    def end(self) -> None:
        _kill_group(self._process)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WAIT)


class Leash:
    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pulled = False

    @contextmanager
    def start(self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> Iterator[Program]:
        """Raises `OSError` when there is no such program. Whatever happens, it has ended afterwards."""
        with self._lock:
            if self._pulled:
                raise Stopped
            self._process = subprocess.Popen(  # noqa: S603 - our own choice of program, and no shell
                list(argv),
                cwd=cwd,
                # Marked, so that it is found and ended after a crash of ours like any process of the run.
                env={**env, orphans.MARKER: self._run_id},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        program = Program(self._process)
        try:
            yield program
            if self._pulled:
                raise Stopped
        finally:
            with self._lock:
                self._process = None
            program.end()

    def pull(self) -> None:
        """Ends what is running and lets nothing start any more. From any thread, as often as you like."""
        with self._lock:
            self._pulled = True
            if self._process is not None:
                _kill_group(self._process)


async def lead(run_id: str, work: Callable[[Leash], T]) -> T:
    """Does the work on a thread. When this is cancelled, what the work was running is ended at once, and waited for a moment."""
    leash = Leash(run_id)
    working = asyncio.create_task(threads.call(work, leash))
    try:
        await asyncio.wait([working])
    except asyncio.CancelledError:
        leash.pull()
        await asyncio.wait([working], timeout=_PATIENCE)
        if not working.cancel() and not working.cancelled():
            working.exception()  # seen, so that asyncio does not report it as forgotten
        raise
    return working.result()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
