"""The terminal engine: any program in a terminal, journalled as it goes, typed into by whoever is let, and ended with all that
it started. To the core it is one long call of a tool called `terminal`."""

import asyncio
import time
from pathlib import Path

from switchtower.core import engine, events
from switchtower.engines.pty import program as programs
from switchtower.engines.pty import rules
from switchtower.engines.pty.asking import Asking
from switchtower.engines.pty.program import Program
from switchtower.engines.pty.pump import Pump
from switchtower.engines.pty.screen import Screen
from switchtower.engines.pty.starting import NotStarted
from switchtower.tools.running import environment, processes
from switchtower.tools.sandboxes import sandbox as sandboxes

TOOL = "terminal"
ANOTHER_TERMINALS = frozenset(
    {
        *("COLUMNS", "LINES", "TERMCAP", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "VTE_VERSION", "WINDOWID"),
        *("TMUX", "TMUX_PANE", "STY", "WINDOW"),
    }
)
"""Programs believe these more than the terminal that they are in."""
STOP_GRACE = 3.0
"""Between asking a program to end and killing it."""
LAST_SCREEN = 8_000
PIECE = 65_536
FULL_PAUSE = 0.05
"""Until it is looked again whether a program that does not read has begun to."""


class TerminalEngine:
    """Implements `engine.Engine`."""

    def __init__(self, *, host_socket: str, prompts_file: Path, sandbox_network: bool = False) -> None:
        self._host_socket = host_socket
        self._prompts_file = prompts_file
        self._sandbox_network = sandbox_network

    async def run(self, task: engine.Task, desk: engine.Desk) -> engine.Result:
        wanted = task.program
        if wanted is None:
            return engine.Result(events.Outcome.FAILED, "What was to run is not known any more")
        try:
            ruleset = rules.load(self._prompts_file if self._prompts_file.exists() else None)
            argv = sandboxes.choose(task.sandbox, network=self._sandbox_network).wrap(wanted.argv, task.workspace.root)
            started = Program.start(
                argv,
                cwd=task.workspace.root,
                environment=self._environment(task, wanted),
                run_id=task.run_id,
                cols=wanted.cols,
                rows=wanted.rows,
                on_exit=desk.exited,  # the run of a cancelled program may be closed before all of its processes have ended
            )
        except (NotStarted, rules.BrokenRules) as problem:
            await desk.emit(events.ErrorRaised(code="NOT_STARTED", message=str(problem)))
            return engine.Result(events.Outcome.FAILED, f"Not started: {problem}", exit_code=127)
        try:
            async with started:
                return await _Work(task, wanted, desk, started, ruleset).to_the_end()
        finally:
            await processes.end_run(task.run_id)

    def _environment(self, task: engine.Task, wanted: events.Program) -> dict[str, str]:
        """The user's own, whole: it is the user's program, and it wants its keys. Only the daemon's own variables stay behind,
        and those that tell of the terminal that the daemon was started in."""
        left_out = environment.DAEMONS_SECRETS | ANOTHER_TERMINALS
        around = environment.whole()
        passed = {name: value for name, value in around.items() if not (environment.is_internal(name) or name in left_out)}
        return {
            **passed,
            "TERM": "xterm-256color",
            # relay, interop: by these a program knows that it runs here, and how to talk to its host
            "RELAY_RUN_ID": task.session_id,
            "RELAY_TOOL": wanted.tool,
            "RELAY_HOSTD_SOCK": self._host_socket,
            "RELAY_CWD": task.workspace.root,
        }


class _Work:
    """One program at work."""

    def __init__(
        self, task: engine.Task, wanted: events.Program, desk: engine.Desk, started: Program, ruleset: rules.Rules
    ) -> None:
        self._wanted = wanted
        self._desk = desk
        self._program = started
        self._call_id = task.run_id
        self._screen = Screen(wanted.cols, wanted.rows)
        self._began = time.monotonic()
        self._echoes = True
        self._denied = False
        self._stopping: asyncio.Task[None] | None = None
        self._pump = Pump(
            started,
            desk,
            self._call_id,
            self._screen,
            on_silence=self._look,
            on_output=self._look_between,
            is_watched_closely=lambda: self._asking.is_watching_closely,
        )
        self._asking = Asking(
            desk,
            self._screen,
            wanted.tool,
            ruleset,
            output=self._pump,
            program=started,
            write=self._write,
            stop=self._deny,
        )

    async def to_the_end(self) -> engine.Result:
        wanted = self._wanted
        args = {"command": wanted.command, "pid": self._program.pid, "cols": wanted.cols, "rows": wanted.rows}
        await self._desk.emit(events.ToolCalled(call_id=self._call_id, tool=TOOL, args=args))
        loop = asyncio.get_running_loop()
        typist = loop.create_task(self._take_typing())
        pumping = loop.create_task(self._pump.run())
        try:
            await asyncio.shield(pumping)
        except asyncio.CancelledError:
            if pumping.cancelled():
                raise
            await self._cut_short(pumping)
            raise
        finally:
            typist.cancel()
            if self._stopping is not None:
                await asyncio.wait([self._stopping])
            await self._asking.close()
        return await self._ended()

    async def _cut_short(self, pumping: "asyncio.Task[None]") -> None:
        """Asked to end, then made to; what it still says on its way out is journalled as before."""
        loop = asyncio.get_running_loop()
        hurried = loop.create_task(self._desk.hurried())
        await asyncio.sleep(0)  # who does not want it asked has said so already
        stopping = loop.create_task(self._program.stop("kill" if hurried.done() else "term", STOP_GRACE))
        try:
            await asyncio.wait([hurried, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                await self._program.stop("kill")
            await asyncio.wait([stopping, pumping])
        finally:
            hurried.cancel()
        await self._finish_call()

    async def _ended(self) -> engine.Result:
        exit_code = await self._finish_call()
        if self._denied:
            return engine.Result(events.Outcome.DENIED, "Denied, and the program was stopped", exit_code)
        outcome = events.Outcome.SUCCESS if exit_code == 0 else events.Outcome.FAILED
        return engine.Result(outcome, f"The program ended with exit code {exit_code}", exit_code)

    async def _finish_call(self) -> int:
        exit_code = self._program.exit_code
        assert exit_code is not None, "a program that was read to its end has ended"
        self._desk.exited(exit_code)
        screen = self._screen.text()
        # Secrets first: of one that is cut in two, the rest is not recognised.
        redacted = await asyncio.to_thread(self._desk.redact, screen) if len(screen) > PIECE else self._desk.redact(screen)
        finished = events.ToolFinished(
            call_id=self._call_id,
            tool=TOOL,
            duration_ms=int((time.monotonic() - self._began) * 1_000),
            text=redacted[-LAST_SCREEN:],
            is_error=exit_code != 0,
        )
        await self._desk.emit(finished)
        return exit_code

    async def _look(self) -> None:
        """The program is silent."""
        echoes = self._program.echoes()
        if echoes is not self._echoes:
            self._echoes = echoes
            await self._desk.emit(events.TerminalEchoed(on=echoes))
        await self._asking.look()

    async def _look_between(self) -> None:
        """The program prints, and has not been silent for a while."""
        await self._asking.look(silent=False)

    async def _take_typing(self) -> None:
        while True:
            match await self._desk.typed():
                case engine.Typed(text):
                    self._asking.typed()
                    self._pump.typed()
                    await self._asking.take_back()
                    await self._type(text.encode(errors="replace"))
                case engine.Resized(cols, rows):
                    self._program.resize(cols, rows)
                    self._screen.resize(cols, rows)
                    self._pump.keyframe_soon()

    async def _type(self, data: bytes) -> None:
        """All of it, however long the program takes to read. What else is typed waits behind it."""
        for start in range(0, len(data), PIECE):
            while True:
                try:
                    self._program.write(data[start : start + PIECE])
                    break
                except programs.InputFull:
                    await asyncio.sleep(FULL_PAUSE)
                except programs.HasEnded:
                    return

    def _write(self, text: str) -> bool:
        try:
            self._program.write(text.encode())
        except (programs.HasEnded, programs.InputFull):
            return False
        return True

    def _deny(self) -> None:
        self._denied = True
        self._stopping = asyncio.get_running_loop().create_task(self._program.stop("term", STOP_GRACE))
