"""A program in its own terminal, from its start to its end. The program gets its own session, the controlling terminal and the
marks of its run before its first instruction. None of our code runs between fork and exec: that could hang in a process with
threads.

All processes that the program started end with it: when its first process has ended, when it is stopped, and when the task that
owns it is cancelled; they get SIGTERM or SIGHUP first and are then killed. This module does not interpret the output. A caller
that starts a program for a run calls `commands.end_run` when the run is over.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import Literal, Self

from switchtower.engines.pty import terminal
from switchtower.tools import concurrency
from switchtower.tools.processes import commands, marks, orphans, proc
from switchtower.tools.sandboxes import launch

_TERMINAL_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_LONGEST_NAME = 200

_TAKE_TERMINAL = """
import fcntl, os, signal, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
               signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error.strerror}")
"""


class ProgramNotStarted(Exception):
    """The program could not be started."""


def start_program(
    argv: Sequence[str], *, cwd: str, environment: Mapping[str, str], mark: marks.ProcessMark, terminal: int
) -> "subprocess.Popen[bytes]":
    """Starts the program with the terminal as input, output and errors. Call `orphans.release_child` when it is reaped."""
    variables = {**environment, "PWD": cwd, **mark.environment_variables()}
    name = argv[0][:_LONGEST_NAME] if argv else ""
    try:
        commands.check_program(argv, cwd, variables)
        # The mark comes first, so that every later process has it.
        wrapped = marks.wrap_with_mark([*_build_terminal_taker(), *argv], mark)
        orphans.register_run(mark.run_id)
        return orphans.start_kept_child(
            mark.run_id,
            lambda: launch.popen(wrapped, cwd=cwd, env=variables, stdin=terminal, stdout=terminal, stderr=terminal),
        )
    except OSError as error:
        raise ProgramNotStarted(_describe_start_error(error, name, cwd)) from error
    except ValueError as error:
        raise ProgramNotStarted(f"`{name}` cannot be started: {error}" if name else str(error)) from error


def _describe_start_error(error: OSError, name: str, cwd: str) -> str:
    if not os.path.isdir(cwd):  # noqa: PTH112 - a row of words from outside, which may be no path at all
        return f"the folder `{cwd[:_LONGEST_NAME]}` cannot be entered; hint: see whether it is still there"
    if isinstance(error, FileNotFoundError):
        return f"there is no program `{name}` that can be run here; hint: see whether it is installed and executable"
    return f"`{name}` cannot be started: {error.strerror or 'the system refused'}"


def _build_terminal_taker() -> list[str]:
    """Returns a command that makes a session, takes the terminal at its input as the controlling one, and becomes the program
    behind it.

    `setsid` does that in a millisecond, and leaves the environment as it is, which a shell would not. It forks when it leads a
    group, so `Popen` must not have made a session already. Without it, or when a terminal signal is ignored here (as in a process
    started with `nohup` or by a script with `&`), which the program would inherit, Python does it in thirty milliseconds.
    """
    setsid = _find_setsid()
    if setsid is not None and not any(signal.getsignal(number) is signal.SIG_IGN for number in _TERMINAL_SIGNALS):
        return [setsid, "-c", "--"]
    return _build_python_taker()


def _build_python_taker() -> list[str]:
    return [sys.executable, "-ISc", _TAKE_TERMINAL]


@cache
def _find_setsid() -> str | None:
    """Tries it once: not every `setsid` supports terminals."""
    setsid = marks.find_program("setsid")
    if setsid is None:
        return None
    main, terminal = os.openpty()
    try:
        tried = subprocess.run(  # noqa: S603
            [setsid, "-c", "--", "true"], stdin=terminal, capture_output=True, timeout=5, check=False
        )
        return setsid if tried.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired):
        return None
    finally:
        os.close(main)
        os.close(terminal)


InputFull = terminal.InputFull
GRACE = commands.GRACE
_REAPING = 0.02

log = logging.getLogger(__name__)


class ProgramExited(Exception):
    """The program has ended; nobody reads what is typed"""

    def __init__(self) -> None:
        super().__init__(ProgramExited.__doc__)


class TerminalProgram:
    """Use it with `async with`, or close it with `aclose`."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        mark: marks.ProcessMark,
        screen: terminal.PseudoTerminal,
        on_exit: Callable[[int], None] | None = None,
    ) -> None:
        self._process = process
        self._on_exit = on_exit
        self._mark = mark
        self._terminal = screen
        self._exit_code: int | None = None
        self._over = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._life = asyncio.create_task(self._wait_and_clean_up())

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        run_id: str,
        cols: int = 80,
        rows: int = 24,
        on_exit: Callable[[int], None] | None = None,
    ) -> Self:
        """Starts the program on the running event loop. It sees only this environment, with its folder and its marks added.
        `on_exit` gets the exit code of the first process as soon as that has ended, before the others are ended. Raises
        `ProgramNotStarted`.
        """
        mark = marks.make_command_mark(run_id)
        try:
            screen = terminal.PseudoTerminal(cols=cols, rows=rows)
        except OSError as error:
            raise ProgramNotStarted(
                f"there is no terminal to be had: {error.strerror}; hint: stop other programs first"
            ) from error
        try:
            process = start_program(argv, cwd=cwd, environment=environment, mark=mark, terminal=screen.theirs)
        except BaseException:
            screen.close()
            raise
        return cls(process, mark, screen, on_exit)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the first process, once all have ended. A death by signal counts as 128 + its number, as in shells."""
        return self._exit_code

    async def read(self) -> bytes:
        """Returns the next output, up to 64 KiB. It is empty at the end: then all has been read, all processes have ended, and
        the exit code is known. Only one task may read at a time. While no task reads, a program that continues to write has to
        wait.
        """
        # Other tasks run between two reads, however much there is to read.
        await asyncio.sleep(0)
        while True:
            is_over = self._over.is_set()
            if output := self._terminal.read_available():
                return output
            if is_over:  # it was over before the read, so nothing can have been written since
                return b""
            await self._terminal.wait_readable()

    def write(self, data: bytes) -> None:
        """Types the data without waiting. Raises `InputFull` when the program has left too much unread, and `ProgramExited`."""
        if self._over.is_set():
            raise ProgramExited
        self._terminal.write(data)

    def resize(self, cols: int, rows: int) -> None:
        self._terminal.resize(cols=cols, rows=rows)

    def has_echo(self) -> bool:
        """False while the program asks for a password."""
        return self._terminal.has_echo()

    def is_canonical(self) -> bool:
        return self._terminal.is_canonical()

    def has_output(self) -> bool:
        """True when there is output that has not been read yet."""
        return self._terminal.has_output()

    def count_unread(self) -> int:
        """Returns the number of typed bytes that the program has not read."""
        return self._terminal.count_unread()

    def flush_input(self) -> None:
        """Discards input that was typed and not read."""
        self._terminal.flush_input()

    def find_reading_state(self) -> terminal.ReadingState:
        """Returns whether the program waits for input at this moment."""
        return terminal.ReadingState.NO if self._over.is_set() else self._terminal.find_reading_state(self._process.pid)

    async def stop(self, how: Literal["term", "kill"] = "term", grace_s: float = GRACE) -> None:
        """Ends the program and all that it started; processes that are left after the grace period are killed. Returns when no
        process is left. A later `kill` does not wait for an earlier grace period. The last output can still be read. It runs to
        its end even when cancelled.
        """
        await concurrency.run_to_completion(self._stop(grace_s if how == "term" else 0))

    async def aclose(self) -> None:
        """Stops the program if it still runs, and closes the terminal; unread output is discarded."""
        try:
            if not self._over.is_set():
                await self.stop()
        finally:
            self._abandon()
            self._terminal.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _stop(self, grace_s: float) -> None:
        if self._over.is_set():
            return
        if grace_s > 0:
            await asyncio.wait([self._end_tree(grace_s)])
        else:
            await end_tree(self._process, self._mark, 0)
        _, unfinished = await asyncio.wait([self._life], timeout=LAST_WAIT)
        if unfinished:
            log.warning("process %s does not go away", self._process.pid)
            self._abandon()

    def _end_tree(self, grace_s: float) -> "asyncio.Task[None]":
        """Sends the signal once, however many callers request it: at a second signal some programs abandon their cleanup."""
        if self._ending is None:
            self._ending = asyncio.create_task(end_tree(self._process, self._mark, grace_s))
        return self._ending

    async def _wait_and_clean_up(self) -> None:
        try:
            await wait_for_exit(self._process.pid)
            if self._on_exit is not None:
                self._on_exit(proc.wait_for_exit_code(self._process.pid))
            # Background processes that it has left end too, and their last output can be read.
            ending = self._end_tree(GRACE)
            await asyncio.wait([ending])
            ending.result()
            self._settle()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """Gives up: the event loop is shutting down and has cancelled the cleanup, or a process is stuck in the kernel."""
        if not self._over.is_set():
            end_tree_now(self._process, self._mark)
            self._settle()
            self._life.cancel()

    def _settle(self) -> None:
        try:
            code = self._process.wait(timeout=_REAPING)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        orphans.release_child(self._process.pid)
        self._exit_code = code if code >= 0 else 128 - code
        self._over.set()
        self._terminal.wake()


async def wait_for_exit(pid: int, *, by_pidfd: bool = True) -> None:
    """Waits for a child's end without reaping it: until it is reaped, its pid cannot be reused. On systems without pidfds a
    thread waits.
    """
    pidfd = proc.open_pidfd(pid) if by_pidfd else None
    if pidfd is None:
        await concurrency.run_in_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return
    try:
        await commands.wait_for_all([pidfd])
    finally:
        os.close(pidfd)


LAST_WAIT = 5.0
"""The seconds that killed processes have to disappear: only one that is stuck in the kernel takes that long, and it dies on its
way out.
"""
LEADER_GRACE = 1.0
"""The seconds that the first process has to end, when it is asked after all others."""


async def end_tree(process: "subprocess.Popen[bytes]", mark: marks.ProcessMark, grace_s: float) -> None:
    """Returns when no process with the program's mark is left. The program itself must not be reaped meanwhile: its pid, which is
    also its group's, could be reused.
    """
    strays = proc.Descendants(process.pid)
    try:
        await asyncio.to_thread(strays.refresh)
        if grace_s > 0:
            await _terminate_gracefully(process.pid, mark, grace_s)
        await asyncio.to_thread(strays.refresh)
        kill_group(process)
        await asyncio.to_thread(strays.kill, LAST_WAIT)
        await asyncio.to_thread(orphans.kill_marked, mark.run_id, command=mark.command)
    finally:
        strays.close()


async def _terminate_gracefully(leader: int, mark: marks.ProcessMark, grace_s: float) -> None:
    """The end of a session's leader makes the kernel send SIGHUP to the foreground programs, which would cut their grace period
    short. So a leader that does not handle SIGTERM itself, such as a shell that runs a line, is asked last. Until then it is
    stopped, or it would start the next command of its line.
    """
    pidfd = proc.open_pidfd(leader)
    if pidfd is None:
        await commands.terminate_gracefully(mark, grace_s, tell=_send_hangup)
        return
    try:
        if proc.has_ended(pidfd) or proc.is_signal_caught(leader, signal.SIGTERM):
            await commands.terminate_gracefully(mark, grace_s, tell=_send_hangup)
            return
        proc.send_signal([pidfd], signal.SIGSTOP)
        try:
            await commands.terminate_gracefully(mark, grace_s, unaffected_pid=leader, tell=_send_hangup)
        finally:
            _send_hangup({leader: pidfd})
        with suppress(TimeoutError):
            async with asyncio.timeout(min(grace_s, LEADER_GRACE)):
                await commands.wait_for_all([pidfd])
    finally:
        os.close(pidfd)


def end_tree_now(process: "subprocess.Popen[bytes]", mark: marks.ProcessMark) -> None:
    """Kills the tree without waiting, for when the event loop is shutting down."""
    kill_group(process)
    orphans.kill_marked(mark.run_id, command=mark.command)


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    if process.returncode is None:
        for kill in (os.killpg, os.kill):  # before it has made its session, no group has that number
            with suppress(ProcessLookupError, PermissionError):
                kill(process.pid, signal.SIGKILL)


def _send_hangup(pidfds: Mapping[int, int]) -> None:
    """Sends one signal to each process: at a second one some programs abandon their cleanup. Interactive shells ignore SIGTERM;
    they get what a terminal sends when it is closed. Stopped processes are continued, so that they can handle it.
    """
    for pid, pidfd in pidfds.items():
        proc.send_signal([pidfd], signal.SIGHUP if proc.is_signal_ignored(pid, signal.SIGTERM) else signal.SIGTERM)
    proc.send_signal(pidfds.values(), signal.SIGCONT)
