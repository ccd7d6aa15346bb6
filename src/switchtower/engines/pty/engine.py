"""The terminal engine: runs any program in a terminal, journals its output, accepts input from permitted users, and ends the
program with all processes that it started. To the core it is one long call of a tool named `terminal`.
"""

import asyncio
import time
from pathlib import Path

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.engines.pty import program as programs
from switchtower.engines.pty import rules
from switchtower.engines.pty.approvals import PromptApprovals
from switchtower.engines.pty.output import OutputPump
from switchtower.engines.pty.program import ProgramNotStarted, TerminalProgram
from switchtower.engines.pty.screen import TerminalScreen
from switchtower.tools.processes import commands, marks
from switchtower.tools.sandboxes import sandbox as sandboxes

TOOL = "terminal"
ANOTHER_TERMINALS = frozenset(
    {
        *("COLUMNS", "LINES", "TERMCAP", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "VTE_VERSION", "WINDOWID"),
        *("TMUX", "TMUX_PANE", "STY", "WINDOW"),
    }
)
"""Variables of another terminal, which programs trust more than the terminal that they run in."""
STOP_GRACE = 3.0
"""The seconds between asking a program to end and killing it."""
LAST_SCREEN = 8_000
PIECE = 65_536
FULL_PAUSE = 0.05
"""The seconds until the next check whether a program that does not read input has started to."""


class TerminalEngine:
    """Implements `engine.Engine`."""

    def __init__(self, *, host_socket: str, prompts_file: Path, sandbox_network: bool = False) -> None:
        self._host_socket = host_socket
        self._prompts_file = prompts_file
        self._sandbox_network = sandbox_network

    async def run(self, task: engine.Task, context: engine.RunContext) -> engine.RunResult:
        wanted = task.program
        if wanted is None:
            return engine.RunResult(events.Outcome.FAILED, "What was to run is not known any more")
        try:
            ruleset = rules.load_rules(self._prompts_file if self._prompts_file.exists() else None)
            argv = sandboxes.choose_sandbox(task.sandbox, network=self._sandbox_network).wrap(wanted.argv, task.workspace.root)
            started = TerminalProgram.start(
                argv,
                cwd=task.workspace.root,
                environment=self._build_environment(task, wanted),
                run_id=task.run_id,
                cols=wanted.cols,
                rows=wanted.rows,
                # The run of a cancelled program may be closed before all of its processes have ended.
                on_exit=context.report_exit,
            )
        except (ProgramNotStarted, rules.InvalidPromptRules) as problem:
            await context.emit(events.ErrorRaised(code="NOT_STARTED", message=str(problem)))
            return engine.RunResult(events.Outcome.FAILED, f"Not started: {problem}", exit_code=127)
        try:
            async with started:
                return await _TerminalRun(task, wanted, context, started, ruleset).run()
        finally:
            await commands.end_run(task.run_id)

    def _build_environment(self, task: engine.Task, wanted: events.Program) -> dict[str, str]:
        """Returns the user's own environment, complete: it is the user's program, and it needs its keys. Only the daemon's own
        variables are removed, and those that describe the terminal that the daemon was started in.
        """
        left_out = marks.DAEMONS_SECRETS | ANOTHER_TERMINALS
        around = marks.get_full_environment()
        passed = {name: value for name, value in around.items() if not (marks.is_internal(name) or name in left_out)}
        return {
            **passed,
            "TERM": "xterm-256color",
            # relay, interop: with these a program knows that it runs here, and how to reach its host
            "RELAY_RUN_ID": task.session_id,
            "RELAY_TOOL": wanted.tool,
            "RELAY_HOSTD_SOCK": self._host_socket,
            "RELAY_CWD": task.workspace.root,
        }


class _TerminalRun:
    """One running program."""

    def __init__(
        self,
        task: engine.Task,
        wanted: events.Program,
        context: engine.RunContext,
        started: TerminalProgram,
        ruleset: rules.PromptRules,
    ) -> None:
        self._wanted = wanted
        self._context = context
        self._program = started
        self._call_id = task.run_id
        self._screen = TerminalScreen(wanted.cols, wanted.rows)
        self._began = time.monotonic()
        self._echoes = True
        self._denied = False
        self._stopping: asyncio.Task[None] | None = None
        self._pump = OutputPump(
            started,
            context,
            self._call_id,
            self._screen,
            on_silence=self._check_screen,
            on_output=self._check_between,
            is_watched_closely=lambda: self._approvals.is_watching_closely,
        )
        self._approvals = PromptApprovals(
            context,
            self._screen,
            wanted.tool,
            ruleset,
            output=self._pump,
            program=started,
            write=self._write,
            stop=self._stop_after_denial,
        )

    async def run(self) -> engine.RunResult:
        wanted = self._wanted
        args = {"command": wanted.command, "pid": self._program.pid, "cols": wanted.cols, "rows": wanted.rows}
        await self._context.emit(events.ToolCalled(call_id=self._call_id, tool=TOOL, args=args))
        loop = asyncio.get_running_loop()
        typist = loop.create_task(self._forward_input())
        pumping = loop.create_task(self._pump.run())
        try:
            await asyncio.shield(pumping)
        except asyncio.CancelledError:
            if pumping.cancelled():
                raise
            await self._stop_program(pumping)
            raise
        finally:
            typist.cancel()
            if self._stopping is not None:
                await asyncio.wait([self._stopping])
            await self._approvals.close()
        return await self._make_result()

    async def _stop_program(self, pumping: "asyncio.Task[None]") -> None:
        """Asks the program to end, then kills it; its last output is journalled as before."""
        loop = asyncio.get_running_loop()
        hurried = loop.create_task(self._context.wait_for_force())
        await asyncio.sleep(0)  # a force stop that was already requested shows now
        stopping = loop.create_task(self._program.stop("kill" if hurried.done() else "term", STOP_GRACE))
        try:
            await asyncio.wait([hurried, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                await self._program.stop("kill")
            await asyncio.wait([stopping, pumping])
        finally:
            hurried.cancel()
        await self._finish_call()

    async def _make_result(self) -> engine.RunResult:
        exit_code = await self._finish_call()
        if self._denied:
            return engine.RunResult(events.Outcome.DENIED, "Denied, and the program was stopped", exit_code)
        outcome = events.Outcome.SUCCESS if exit_code == 0 else events.Outcome.FAILED
        return engine.RunResult(outcome, f"The program ended with exit code {exit_code}", exit_code)

    async def _finish_call(self) -> int:
        exit_code = self._program.exit_code
        assert exit_code is not None, "a program that was read to its end has ended"
        self._context.report_exit(exit_code)
        screen = self._screen.render_text()
        # Secrets are redacted first: the rest of a secret that is cut in two would not be recognised.
        redacted = await asyncio.to_thread(self._context.redact, screen) if len(screen) > PIECE else self._context.redact(screen)
        finished = events.ToolFinished(
            call_id=self._call_id,
            tool=TOOL,
            duration_ms=int((time.monotonic() - self._began) * 1_000),
            text=redacted[-LAST_SCREEN:],
            is_error=exit_code != 0,
        )
        await self._context.emit(finished)
        return exit_code

    async def _check_screen(self) -> None:
        """Checks the screen when the program is silent."""
        echoes = self._program.has_echo()
        if echoes is not self._echoes:
            self._echoes = echoes
            await self._context.emit(events.TerminalEchoChanged(on=echoes))
        await self._approvals.check_screen()

    async def _check_between(self) -> None:
        """Checks the screen while the program prints and has not been silent for a while."""
        await self._approvals.check_screen(silent=False)

    async def _forward_input(self) -> None:
        while True:
            match await self._context.next_terminal_input():
                case engine.TypedText(text):
                    self._approvals.on_input()
                    self._pump.on_input()
                    await self._approvals.withdraw()
                    await self._type(text.encode(errors="replace"))
                case engine.ResizedScreen(cols, rows):
                    self._program.resize(cols, rows)
                    self._screen.resize(cols, rows)
                    self._pump.schedule_keyframe()

    async def _type(self, data: bytes) -> None:
        """Types all of it, however long the program takes to read. Further input waits behind it."""
        for start in range(0, len(data), PIECE):
            while True:
                try:
                    self._program.write(data[start : start + PIECE])
                    break
                except programs.InputFull:
                    await asyncio.sleep(FULL_PAUSE)
                except programs.ProgramExited:
                    return

    def _write(self, text: str) -> bool:
        try:
            self._program.write(text.encode())
        except (programs.ProgramExited, programs.InputFull):
            return False
        return True

    def _stop_after_denial(self) -> None:
        self._denied = True
        self._stopping = asyncio.get_running_loop().create_task(self._program.stop("term", STOP_GRACE))
