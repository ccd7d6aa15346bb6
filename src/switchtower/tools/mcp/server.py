"""One configured server in one session: started when it is needed, restarted after it died, stopped when it is idle.

All of that happens inside a call or at the start of a run, where a report reaches a client. A dead server that is not needed
stays down.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from switchtower.core import errors
from switchtower.tools.mcp import config, connection, process, tool_list
from switchtower.tools.processes import marks
from switchtower.tools.sandboxes import sandbox as sandboxes

if TYPE_CHECKING:
    import mcp_types

FAILED = "MCP_SERVER_FAILED"
RESTARTED = "MCP_SERVER_RESTARTED"
TOOLS_LEFT_OUT = "MCP_TOOLS_LEFT_OUT"

MOST_RESTARTS = 3
RESTARTS_WITHIN = 300.0
_FIRST_PAUSE = 0.25
"""The seconds before a server is restarted; they double each further time."""

ChooseSandbox = Callable[[str], sandboxes.Sandbox]
Report = Callable[[str, str], Awaitable[None]]
"""Receives a code and a sentence for people."""


class ServerLocation(Struct, frozen=True):
    """The place where a session's servers work."""

    session_id: str
    workspace: str
    sandbox: str
    environment: Mapping[str, str]
    """The daemon's environment; a server gets a small part of it."""
    choose_sandbox: ChooseSandbox


class ServerLimits(Struct, frozen=True):
    start_s: float = 20.0
    call_s: float = 120.0
    idle_s: float = 900.0


class McpServer:
    def __init__(self, configured: config.ServerConfig, place: ServerLocation, limits: ServerLimits, report: Report) -> None:
        self.config = configured
        self.report = report
        """The report function of the active run."""
        self._place = place
        self._limits = limits
        self._lock = asyncio.Lock()
        self._connection: connection.McpConnection | None = None
        """The current connection, even a dead one until it is replaced."""
        self._stopped = False
        self._leaving: set[asyncio.Task[None]] = set()
        self._handshake = False
        self._restarts: deque[float] = deque()
        self._reported_loss: connection.McpConnection | None = None
        self._reported = ""
        self._calls = 0
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_started(self) -> bool:
        """True when it was started and should be running, even if it has died since."""
        return self._connection is not None and not self._stopped

    async def prepare(self) -> tuple[tool_list.ListedTool, ...] | None:
        """Returns its tools at the start of a run; `None` when it is unavailable, which has then been reported."""
        async with self._lock:
            try:
                return await self._prepare_tools()
            except connection.McpConnectionEnded as ended:
                self._connection = None
                if not self._stopped:
                    await self._report(FAILED, ended.reason.full_text)
                return None
            finally:
                self._schedule_idle_stop()

    async def call(self, tool: str, args: Mapping[str, Any], tell: connection.CallProgressCallback) -> "mcp_types.CallToolResult":
        """Raises `connection.McpConnectionEnded`, `McpTimedOut` or `McpCallRefused`."""
        self._calls += 1
        try:
            try:
                return await self._call(tool, args, tell)
            except connection.McpConnectionEnded as ended:
                if not ended.was_not_sent:
                    raise
                return await self._call(tool, args, tell)
        except connection.McpConnectionEnded as ended:
            # All concurrent calls fail with it; it is reported once.
            if not self._stopped and self._reported_loss is not self._connection:
                self._reported_loss = self._connection
                await self._report(FAILED, ended.reason.full_text)
            raise
        finally:
            self._calls -= 1
            self._schedule_idle_stop()

    async def _call(
        self, tool: str, args: Mapping[str, Any], tell: connection.CallProgressCallback
    ) -> "mcp_types.CallToolResult":
        living = await self._get_connection()
        return await living.call(tool, args, limit_s=self._limits.call_s, tell=tell)

    async def stop(self) -> None:
        self._stopped = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._connection is not None:
            await self._connection.stop()
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _prepare_tools(self) -> tuple[tool_list.ListedTool, ...]:
        died_of = None
        if self._connection is not None:
            try:
                await self._connection.refresh(self._limits.start_s)
            except (connection.McpConnectionEnded, connection.McpTimedOut, connection.McpCallRefused) as trouble:
                died_of = str(trouble)
                await self._connection.stop()
        if self._connection is None or died_of is not None:
            # A user started the run, so one attempt is always allowed.
            await self._start(counted=False)
        assert self._connection is not None
        found = self._connection.listing
        if died_of is not None:
            await self._report(RESTARTED, f"{died_of}; it was started again")
        if found.left_out != self._reported:
            self._reported = found.left_out
            await self._report(TOOLS_LEFT_OUT, f"offers more than can be used: {found.left_out}")
        return found.tools

    async def _get_connection(self) -> connection.McpConnection:
        async with self._lock:
            if self._connection is None:
                return await self._start(counted=False)
            if not self._connection.is_alive:
                await self._connection.stop()
                died_of = self._connection.failure_reason
                await self._start(counted=True)
                await self._report(RESTARTED, f"{died_of.text if died_of else 'was gone'}; it was started again")
            return self._connection

    async def _start(self, *, counted: bool) -> connection.McpConnection:
        """Retries until the time or the restarts are used up. Only a process that exited by itself is started again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.start_s
        died_of = (self._connection.failure_reason if self._connection is not None else None) or connection.FailureReason(
            "is gone"
        )
        while True:
            if counted:
                await self._pause(died_of)
            try:
                self._connection = await self._connect()
                await self._connection.start(max(0.0, deadline - loop.time()))
            except connection.McpConnectionEnded as ended:
                if not ended.by_itself or loop.time() >= deadline:
                    raise
                # Some older servers exit when the first message is not the handshake.
                self._handshake = not self._handshake
                died_of, counted = ended.reason, True
            except BaseException:
                self._connection = None  # no call waits for it any more
                raise
            else:
                self._handshake = self._connection.handshaken
                return self._connection

    async def _pause(self, died_of: connection.FailureReason) -> None:
        now = asyncio.get_running_loop().time()
        while self._restarts and self._restarts[0] < now - RESTARTS_WITHIN:
            self._restarts.popleft()
        if len(self._restarts) >= MOST_RESTARTS:
            spent = f"it was started again {MOST_RESTARTS} times within {RESTARTS_WITHIN / 60:g} minutes and now stays down"
            raise connection.McpConnectionEnded(connection.FailureReason(f"{died_of.text}; {spent}", died_of.error_text))
        self._restarts.append(now)
        await asyncio.sleep(_FIRST_PAUSE * 2 ** (len(self._restarts) - 1))

    async def _connect(self) -> connection.McpConnection:
        start_process = None
        if isinstance(self.config.target, config.ServerProgram):
            start_process = await asyncio.to_thread(self._make_starter, self.config.target)
        if self._stopped:
            raise connection.McpConnectionEnded(connection.FailureReason("was stopped"))
        return connection.McpConnection(
            self.config, workspace=self._place.workspace, start_process=start_process, handshake=self._handshake
        )

    def _make_starter(self, program: config.ServerProgram) -> Callable[[], process.ServerProcess]:
        env = process.build_server_environment(self._place.environment, program.env)
        try:
            process.find_program(program.argv[0], cwd=program.cwd, env=env)
            # The mark comes first, so that every later process has it, including the sandbox's guard.
            mark = process.make_mark(self._place.session_id)
            argv = marks.wrap_with_mark(self._wrap_in_sandbox(program.argv), mark)
        except OSError as error:
            raise connection.McpConnectionEnded(connection.FailureReasons(self.config).explain_error(error, None)) from error
        return partial(process.ServerProcess, argv, cwd=program.cwd, env=env, mark=mark)

    def _wrap_in_sandbox(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """A workspace's server runs inside the session's sandbox; the user's own server runs without one."""
        if self.config.trusted or self._place.sandbox == "local":
            return argv
        try:
            return tuple(self._place.choose_sandbox(self._place.sandbox).wrap(argv, self._place.workspace))
        except errors.SandboxUnavailable as error:
            raise connection.McpConnectionEnded(connection.FailureReason(f"could not be started: {error.message}")) from error

    async def _report(self, code: str, what: str) -> None:
        await self.report(code, f"the MCP server `{self.config.name}` {what}")

    def _schedule_idle_stop(self) -> None:
        """Starts the idle timer."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if not self._stopped:
            self._idle_timer = asyncio.get_running_loop().call_later(self._limits.idle_s, self._stop_in_background)

    def _stop_in_background(self) -> None:
        if self._calls or self._lock.locked() or self._connection is None:
            return  # the task that uses it schedules this again
        leaving = asyncio.create_task(self._connection.stop())
        self._connection = None
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
