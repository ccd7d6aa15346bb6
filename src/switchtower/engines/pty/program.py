"""A program in a terminal of its own, from its start to its end. All that it started ends with it: when its first process
has ended, when it is stopped, and when whoever holds it is cancelled. What the output means is decided elsewhere.

Whoever starts one for a run calls `processes.end_run` when the run is over.
"""

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

from switchtower.engines.pty import hangup, readers, starting, terminal
from switchtower.engines.pty.starting import ProgramNotStarted
from switchtower.tools.running import adoption, marks, patience, proc, processes, threads

InputFull = terminal.InputFull
GRACE = processes.GRACE
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
            process = starting.start_program(argv, cwd=cwd, environment=environment, mark=mark, terminal=screen.theirs)
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

    def find_reading_state(self) -> readers.ReadingState:
        """Whether the program waits for input at this moment."""
        return readers.ReadingState.NO if self._over.is_set() else self._terminal.find_reading_state(self._process.pid)

    async def stop(self, how: Literal["term", "kill"] = "term", grace_s: float = GRACE) -> None:
        """Ends the program and all that it started; what is left after the grace is killed. Returns when nothing is left. A
        later `kill` does not wait for an earlier grace. The last output can still be read. Goes to its end even when
        cancelled."""
        await patience.run_to_completion(self._stop(grace_s if how == "term" else 0))

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
            await hangup.end_tree(self._process, self._mark, 0)
        _, unfinished = await asyncio.wait([self._life], timeout=hangup.LAST_WAIT)
        if unfinished:
            log.warning("process %s does not go away", self._process.pid)
            self._abandon()

    def _end_tree(self, grace_s: float) -> "asyncio.Task[None]":
        """Asks once, whoever wants it: at a second signal some programs drop their cleaning up."""
        if self._ending is None:
            self._ending = asyncio.create_task(hangup.end_tree(self._process, self._mark, grace_s))
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
            hangup.end_tree_now(self._process, self._mark)
            self._settle()
            self._life.cancel()

    def _settle(self) -> None:
        try:
            code = self._process.wait(timeout=_REAPING)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        adoption.release_child(self._process.pid)
        self._exit_code = code if code >= 0 else 128 - code
        self._over.set()
        self._terminal.wake()


async def wait_for_exit(pid: int, *, by_pidfd: bool = True) -> None:
    """Waits for a child's end without reaping it: until that, its pid cannot become anybody else's. By a thread where the
    system has no pidfds."""
    pidfd = proc.open_pidfd(pid) if by_pidfd else None
    if pidfd is None:
        await threads.run_in_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return
    try:
        await processes.wait_for_all([pidfd])
    finally:
        os.close(pidfd)
