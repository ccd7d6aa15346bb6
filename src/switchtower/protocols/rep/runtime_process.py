"""A runtime's process: its pipes, its end, and the end of all that it started. It does not know what the lines mean.

Reading goes through the event loop and never stops while the process lives, so that a runtime that writes much is not blocked,
and one that reads nothing blocks nothing else. Only the last bytes of its stderr are kept.
"""

import asyncio
import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

from switchtower.tools import concurrency
from switchtower.tools.processes import marks, orphans, proc
from switchtower.tools.sandboxes import launch
from switchtower.transports import stream

MAX_LINE_BYTES = 16 * 1024 * 1024
STDERR_TAIL_BYTES = 4096
_READ = 256 * 1024
_MAX_FINAL_READS = 64
"""The rest of the pipes is read at the end, but not for ever: another process may keep writing into them."""
_EXIT_AFTER_EOF = 0.25
"""A process that ends closes its pipes a moment before it exits, and its exit code is worth that moment."""
_TERM_GRACE = 0.5
_KILL_TIMEOUT = 5.0
_POLL = 0.02

_REMEDIES = {
    errno.ENOENT: "see whether the path is right",
    errno.EACCES: "make it executable with `chmod +x`",
    errno.EISDIR: "give the path of the program in that folder",
    errno.ENOEXEC: "a script begins with a line such as `#!/usr/bin/env python3`",
}


class RuntimeOutputListener(Protocol):
    def on_line(self, received: list[bytes]) -> None: ...

    def on_broken(self, reason: str) -> None:
        """No more lines will arrive. It is called at most once."""


class RuntimeNotStarted(Exception):
    """The runtime could not be started"""


def start_process(
    argv: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    run_id: str,
    listener: RuntimeOutputListener,
    process_mark: str | None = None,
) -> "RuntimeProcess":
    """Starts the runtime in its own session, and so in its own process group. With `process_mark` its processes carry the mark of
    another owner, which cleans them up after this one has ended. Raises `RuntimeNotStarted`."""
    mark = marks.make_command_mark(process_mark or run_id)
    variables = {**environment, **mark.environment_variables()}
    try:
        if not argv:
            raise RuntimeNotStarted("there is no runtime to start; hint: set `executor_path` in `tm/config/runtime.yaml`")
        program = str(Path(cwd, argv[0])) if "/" in argv[0] else argv[0]
        if shutil.which(program, path=variables.get("PATH")) is None:
            why = errno.ENOENT
            if "/" in program and Path(program).exists():
                why = errno.EISDIR if Path(program).is_dir() else errno.EACCES
            raise OSError(why, os.strerror(why))
        wrapped = marks.wrap_with_mark([program, *argv[1:]], mark)
        if process_mark is None:
            orphans.register_run(run_id)
        process = orphans.start_kept_child(
            mark.run_id,
            lambda: launch.popen(
                wrapped,
                cwd=cwd,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            ),
        )
    except (OSError, ValueError) as error:
        if process_mark is None:
            orphans.unregister_run(run_id)
        number = error.errno if isinstance(error, OSError) else None
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        remedy = _REMEDIES.get(number or 0, "see whether it exists and is executable")
        raise RuntimeNotStarted(f"the runtime `{argv[0][:200]}` cannot be started: {reason}; hint: {remedy}") from error
    return RuntimeProcess(process, run_id, mark, listener)


class RuntimeProcess:
    """The owner must call `end`, whatever happened."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", run_id: str, mark: marks.ProcessMark, listener: RuntimeOutputListener
    ) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._process = process
        self._run_id = run_id
        self._mark = mark
        self._has_own_mark = mark.run_id == run_id
        """No other process has this mark."""
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._stdin: IO[bytes] = process.stdin
        self._stdout: IO[bytes] = process.stdout
        self._stderr: IO[bytes] = process.stderr
        self._splitter = stream.LineSplitter(MAX_LINE_BYTES)
        self._unwritten = bytearray()
        self._stderr_tail = bytearray()
        self._is_broken = False
        self._is_closed = False
        self._exited = asyncio.Event()
        self._exit_timer: asyncio.TimerHandle | None = None
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(self._stdout.fileno(), self._read_stdout)
        self._loop.add_reader(self._stderr.fileno(), self._read_stderr)
        self._pidfd = proc.open_pidfd(process.pid)
        if self._pidfd is not None:
            self._loop.add_reader(self._pidfd, self._on_exit)
        else:
            self._watch_exit()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while the process lives. A death by signal counts as 128 + its number, as in shells."""
        if self._process.returncode is not None:
            code = self._process.returncode
            return code if code >= 0 else 128 - code
        with suppress(ChildProcessError):
            # The process is not reaped yet: until then its pid, which is also its group's, cannot be reused.
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                return ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status
        return None

    def read_stderr_tail(self) -> str:
        """Returns the last bytes of its stderr, without secrets."""
        if not self._stderr_tail:
            return ""
        from switchtower.core.redact.redactor import Redactor

        return Redactor().redact_text(self._stderr_tail.decode(errors="replace")).strip()

    def write(self, line: bytes) -> None:
        """Never waits. Bytes that the runtime does not read stay in our buffer until it does, or until the end."""
        if self._is_closed or self._is_broken:
            return
        if not self._unwritten:
            try:
                written = os.write(self._stdin.fileno(), line)
            except BlockingIOError:
                written = 0
            except OSError:
                self._on_pipe_closed("closed its input")
                return
            if written == len(line):
                return
            line = line[written:]
            self._loop.add_writer(self._stdin.fileno(), self._continue_writing)
        self._unwritten += line

    async def end(self, *, grace_s: float) -> None:
        """Closes the runtime's input, gives it that long to exit by itself, then ends it and all that it started. Nothing is left
        afterwards, no process and no descriptor. A cancelled caller does not interrupt this."""
        if self._is_closed:
            return
        try:
            await concurrency.run_to_completion(self._end(grace_s))
        finally:
            self._close()

    async def _end(self, grace_s: float) -> None:
        self._close_stdin()
        if not await self._has_exited(within=grace_s):
            self._kill_group(signal.SIGTERM)
            await self._has_exited(within=_TERM_GRACE)
        self._kill_group(signal.SIGKILL)
        await self._has_exited(within=_KILL_TIMEOUT)
        await asyncio.to_thread(self._kill_descendants)
        self._read_rest()

    async def _has_exited(self, *, within: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._exited.wait()
        return self._exited.is_set()

    def _close(self) -> None:
        if self._is_closed:
            return
        self._close_stdin()
        self._is_closed = self._is_broken = True
        if not self._exited.is_set():
            # The event loop is shutting down and has cancelled the cleanup too.
            self._kill_group(signal.SIGKILL)
            self._kill_descendants()
        if self._exit_timer is not None:
            self._exit_timer.cancel()
        for pipe in (self._stdout, self._stderr):
            self._loop.remove_reader(pipe.fileno())
            pipe.close()
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_POLL)
        orphans.release_child(self._process.pid)
        if self._has_own_mark:
            orphans.unregister_run(self._mark.run_id)

    def _kill_descendants(self) -> None:
        """Ends the processes that the runtime started and did not end. Our own runtime marks the commands of its steps itself,
        for the run and with separate numbers; on systems whose limits cannot carry marks, these are the only way to find them."""
        orphans.kill_marked(self._run_id)
        if not self._has_own_mark:
            orphans.kill_marked(self._mark.run_id, command=self._mark.command)

    def _kill_group(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _close_stdin(self) -> None:
        if not self._stdin.closed:
            if self._unwritten:
                self._loop.remove_writer(self._stdin.fileno())
                self._unwritten.clear()
            self._stdin.close()

    def _continue_writing(self) -> None:
        try:
            written = os.write(self._stdin.fileno(), self._unwritten)
        except BlockingIOError:
            return
        except OSError:
            self._loop.remove_writer(self._stdin.fileno())
            self._unwritten.clear()
            self._on_pipe_closed("closed its input")
            return
        del self._unwritten[:written]
        if not self._unwritten:
            self._loop.remove_writer(self._stdin.fileno())

    def _read_stdout(self) -> bool:
        """Returns whether there may be more."""
        try:
            piece = os.read(self._stdout.fileno(), _READ)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if not piece:
            self._loop.remove_reader(self._stdout.fileno())
            self._on_pipe_closed("closed its output")
            return False
        if self._is_broken:
            return True
        received = self._splitter.feed(piece)
        if received:
            self._listener.on_line(received)
        if self._splitter.oversized:
            self._report_broken(f"wrote a line of more than {MAX_LINE_BYTES} bytes")
        return True

    def _read_stderr(self) -> bool:
        try:
            piece = os.read(self._stderr.fileno(), _READ)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if not piece:
            self._loop.remove_reader(self._stderr.fileno())
            return False
        self._stderr_tail += piece[-STDERR_TAIL_BYTES:]
        del self._stderr_tail[:-STDERR_TAIL_BYTES]
        return True

    def _read_rest(self) -> None:
        for read in (self._read_stdout, self._read_stderr):
            for _ in range(_MAX_FINAL_READS):
                if not read():
                    break

    def _on_exit(self) -> None:
        """rep 4: an end is noticed at once, even when another process still holds the pipes open."""
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
        self._exited.set()
        self._read_rest()
        self._report_broken(f"ended with exit code {self.exit_code}")

    def _watch_exit(self) -> None:
        """Polls for the exit, for systems without pidfds."""
        if self._is_closed:
            return
        if self.exit_code is not None:
            self._on_exit()
        else:
            self._loop.call_later(_POLL, self._watch_exit)

    def _on_pipe_closed(self, pipe: str) -> None:
        """One of the runtime's pipes is closed. Most likely it is about to end, and then its exit code is more informative."""
        if not self._is_broken and not self._exited.is_set() and self._exit_timer is None:
            self._exit_timer = self._loop.call_later(_EXIT_AFTER_EOF, self._report_broken, f"{pipe} but still runs")

    def _report_broken(self, reason: str) -> None:
        if not self._is_broken:
            self._is_broken = True
            self._read_stderr()
            self._listener.on_broken(reason)
