"""How a program comes to its terminal: a session of its own, the terminal as the one that controls it, and the marks of its
run, all before its first instruction. Nothing of ours runs between fork and exec: that could hang in a process with threads.

A program in a terminal of its own, from its start to its end. All that it started ends with it: when its first process
has ended, when it is stopped, and when whoever holds it is cancelled. What the output means is decided elsewhere.

Whoever starts one for a run calls `processes.end_run` when the run is over.

Ends all that a program in a terminal has started, wherever it went: politely first, then for certain."""

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
from switchtower.tools.processes import command_environment, commands, marks, orphans, proc
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
    """Starts it with the terminal as input, output and errors. `adoption.let_go` when it is reaped."""
    variables = {**environment, "PWD": cwd, **mark.environment_variables()}
    name = argv[0][:_LONGEST_NAME] if argv else ""
    try:
        commands.check_program(argv, cwd, variables)
        # The mark first: it is on everything from then on.
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
    """Makes a session, takes the terminal at its input for it, and becomes the program behind it.

    `setsid` does that in a millisecond, and leaves the environment as it is, which a shell would not. It forks when it leads
    a group, so `Popen` must not have made a session already. Without it, or when a signal of terminals is ignored here
    (as in what was started with `nohup` or by a script with `&`), which the program would inherit, Python does it in thirty.
    """
    setsid = _find_setsid()
    if setsid is not None and not any(signal.getsignal(number) is signal.SIG_IGN for number in _TERMINAL_SIGNALS):
        return [setsid, "-c", "--"]
    return _build_python_taker()


def _build_python_taker() -> list[str]:
    return [sys.executable, "-ISc", _TAKE_TERMINAL]


@cache
def _find_setsid() -> str | None:
    """Tried once: not every `setsid` knows about terminals."""
    setsid = command_environment.find_program("setsid")
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
    """To be used with `async with`, or closed with `aclose`."""

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
        """Starts it, on the running event loop. The environment is all that it sees, with its folder and its marks added.
        `on_exit` gets the exit code of the first process as soon as that has ended, before the others are ended. Raises
        `NotStarted`."""
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
        """Of its first process, when all have ended. A death by signal counts as 128 + its number, as shells have it."""
        return self._exit_code

    async def read(self) -> bytes:
        """The next output, up to 64 KiB. Empty at the end: then all has been read, all processes have ended, and the exit code
        is known. For one reader at a time. While nobody reads, a program that writes on has to wait."""
        # Other work comes between two reads, however much there is to read.
        await asyncio.sleep(0)
        while True:
            is_over = self._over.is_set()
            if output := self._terminal.read_available():
                return output
            if is_over:  # already before we looked, so nothing can have been written since
                return b""
            await self._terminal.wait_readable()

    def write(self, data: bytes) -> None:
        """Types it. Never waits. Raises `InputFull` when the program has left too much unread, and `HasEnded`."""
        if self._over.is_set():
            raise ProgramExited
        self._terminal.write(data)

    def resize(self, cols: int, rows: int) -> None:
        self._terminal.resize(cols=cols, rows=rows)

    def has_echo(self) -> bool:
        """False while somebody is asked for a password."""
        return self._terminal.has_echo()

    def is_canonical(self) -> bool:
        return self._terminal.is_canonical()

    def has_output(self) -> bool:
        """Whether there is output that was not read yet."""
        return self._terminal.has_output()

    def count_unread(self) -> int:
        """Bytes that were typed and that the program has not read."""
        return self._terminal.count_unread()

    def flush_input(self) -> None:
        """Takes back what was typed and not read."""
        self._terminal.flush_input()

    def find_reading_state(self) -> terminal.ReadingState:
        """Whether the program waits for input at this moment."""
        return terminal.ReadingState.NO if self._over.is_set() else self._terminal.find_reading_state(self._process.pid)

    async def stop(self, how: Literal["term", "kill"] = "term", grace_s: float = GRACE) -> None:
        """Ends the program and all that it started; what is left after the grace is killed. Returns when nothing is left. A
        later `kill` does not wait for an earlier grace. The last output can still be read. Goes to its end even when
        cancelled."""
        await concurrency.run_to_completion(self._stop(grace_s if how == "term" else 0))

    async def aclose(self) -> None:
        """Stops it if it still runs, and lets go of the terminal with what was not read."""
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
        """Asks once, whoever wants it: at a second signal some programs drop their cleaning up."""
        if self._ending is None:
            self._ending = asyncio.create_task(end_tree(self._process, self._mark, grace_s))
        return self._ending

    async def _wait_and_clean_up(self) -> None:
        try:
            await wait_for_exit(self._process.pid)
            if self._on_exit is not None:
                self._on_exit(proc.wait_for_exit_code(self._process.pid))
            # What it has left in the background goes too, and what that still writes on its way out can be read.
            ending = self._end_tree(GRACE)
            await asyncio.wait([ending])
            ending.result()
            self._settle()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """The event loop is going down and has cancelled the cleaning, or a process is stuck in the kernel."""
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
    """Waits for a child's end without reaping it: until that, its pid cannot become anybody else's. By a thread where the
    system has no pidfds."""
    pidfd = proc.open_pidfd(pid) if by_pidfd else None
    if pidfd is None:
        await concurrency.run_in_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return
    try:
        await commands.wait_for_all([pidfd])
    finally:
        os.close(pidfd)


LAST_WAIT = 5.0
"""For the killed to be gone: only one stuck in the kernel takes that long, and it dies on its way out."""
LEADER_GRACE = 1.0
"""For the first process, when it is asked after all others."""


async def end_tree(process: "subprocess.Popen[bytes]", mark: marks.ProcessMark, grace_s: float) -> None:
    """Returns when nothing with the program's mark is left. The program itself must not be reaped meanwhile: its pid, which
    is also its group's, could become somebody else's."""
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
    """The end of a session's leader makes the kernel send SIGHUP to the foreground programs, which would take their time from
    them. So a leader that does not handle SIGTERM itself, such as a shell that runs a line, is asked last. Until then it is
    held, or it would start the next command of its line."""
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
    """For when the event loop goes down and cannot wait any more."""
    kill_group(process)
    orphans.kill_marked(mark.run_id, command=mark.command)


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    if process.returncode is None:
        for kill in (os.killpg, os.kill):  # before it has a session of its own, there is no group of that number
            with suppress(ProcessLookupError, PermissionError):
                kill(process.pid, signal.SIGKILL)


def _send_hangup(pidfds: Mapping[int, int]) -> None:
    """Each gets one signal: at a second some programs drop their cleaning up. Interactive shells ignore SIGTERM; they get
    what a terminal sends when it is closed. The stopped are continued, so that they can hear it."""
    for pid, pidfd in pidfds.items():
        proc.send_signal([pidfd], signal.SIGHUP if proc.is_signal_ignored(pid, signal.SIGTERM) else signal.SIGTERM)
    proc.send_signal(pidfds.values(), signal.SIGCONT)
