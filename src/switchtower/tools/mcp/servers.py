"""All MCP servers of a daemon, by session. `list_tools` is called at the start of each run and returns the available tools: no
fault of a file or a server is ever fatal to a run.

A server of the workspace's file is started only after an approval: the file came with whatever was cloned and may name any
program.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from switchtower.tools import concurrency, registry
from switchtower.tools.mcp import config, server, tool_list, tools
from switchtower.tools.sandboxes import sandbox as sandboxes

DENIED = "MCP_SERVER_DENIED"
CONFIG_INVALID = "MCP_CONFIG_INVALID"

Admit = Callable[[config.ServerConfig], Awaitable[bool]]


class McpServers:
    def __init__(
        self,
        user_file: Path | None,
        *,
        environment: Callable[[], Mapping[str, str]],
        idle_s: float = 900,
        start_s: float = 20,
        call_s: float = 120,
        reserved: Iterable[str] = tool_list.RESERVED_NAMES,
        choose_sandbox: server.ChooseSandbox = sandboxes.choose_sandbox,
        learn_secret: Callable[[str], None] = lambda secret: None,
        trusts: Callable[[str], bool] = lambda workspace: True,
    ) -> None:
        """`trusts` returns whether the owner trusts a workspace, and so whether its servers count. `environment` is what `${VAR}`
        refers to and what servers get a part of; with `TOWER_DAEMON` in it, `kill_leftovers` finds processes that a crash leaves
        behind. `reserved` are names that no tool of a server may have. `choose_sandbox` returns the sandbox of a name, for
        servers of the workspace's file. `learn_secret` gets each secret that a server is given, so that it can be redacted
        everywhere.
        """
        self._user_file = user_file
        self._environment = environment
        self._limits = server.ServerLimits(start_s=start_s, call_s=call_s, idle_s=idle_s)
        self._reserved = frozenset(reserved)
        self._choose_sandbox = choose_sandbox
        self._learn_secret = learn_secret
        self._trusts = trusts
        self._sessions: dict[str, _SessionMcpServers] = {}
        self._closed = False

    async def list_tools(
        self,
        session_id: str,
        workspace: str,
        *,
        sandbox: str,
        admit: Admit,
        report: server.Report,
        handed: config.SessionServers | None = None,
    ) -> tuple[registry.Tool, ...]:
        """Returns the tools of all admitted and available servers of this workspace. `admit` is called for servers of the
        workspace's file that do not run yet; `report` gets the failures, now and during the run. `handed` are servers that the
        session adds.
        """
        if self._closed:
            return ()
        environment = dict(self._environment())
        trusted = await asyncio.to_thread(self._trusts, workspace)
        found = await asyncio.to_thread(config.find_servers, workspace, self._user_file, environment, handed, trusted=trusted)
        nothing_to_do = not found.servers and not found.problems and session_id not in self._sessions
        if nothing_to_do or self._closed:
            return ()
        session = self._sessions.setdefault(session_id, _SessionMcpServers(self._limits, self._reserved, self._learn_secret))
        place = server.ServerLocation(session_id, workspace, sandbox, environment, self._choose_sandbox)
        return await session.list_tools(found, place, admit, report)

    async def end_session(self, session_id: str) -> None:
        """Ends the session's servers. It runs to its end even when cancelled."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await concurrency.run_to_completion(session.end())

    async def close(self) -> None:
        """Ends all servers. It runs to its end even when cancelled."""
        self._closed = True
        sessions = [*self._sessions.values()]
        self._sessions.clear()
        await concurrency.run_to_completion(_gather_all(session.end() for session in sessions))


class _SessionMcpServers:
    def __init__(self, limits: server.ServerLimits, reserved: frozenset[str], learn_secret: Callable[[str], None]) -> None:
        self._limits = limits
        self._learn_secret = learn_secret
        self._names = tool_list.ToolNames(reserved)
        self._servers: dict[str, server.McpServer] = {}
        self._lock = asyncio.Lock()
        self._ended = False
        self._reported: set[str] = set()

    async def list_tools(
        self, found: config.FoundServers, place: server.ServerLocation, admit: Admit, report: server.Report
    ) -> tuple[registry.Tool, ...]:
        async with self._lock:
            await self._report_problems(found.problems, report)
            await self._drop_all_but({configured.name: configured.subject for configured in found.servers})
            starting: list[asyncio.Task[list[tools.McpTool]]] = []
            try:
                for configured in found.servers:
                    if (chosen := await self._admit(configured, place, admit, report)) is not None:
                        starting.append(asyncio.create_task(self._make_tools(chosen)))
                return tuple(one for tools in await asyncio.gather(*starting) for one in tools)
            finally:
                await concurrency.run_to_completion(_cancel_all(starting))

    async def end(self) -> None:
        self._ended = True
        await _gather_all(one.stop() for one in self._servers.values())

    async def _admit(
        self, configured: config.ServerConfig, place: server.ServerLocation, admit: Admit, report: server.Report
    ) -> server.McpServer | None:
        """Returns the server that may run, started or not."""
        known = self._servers.get(configured.name)
        if known is not None and known.is_started:
            known.report = report
            return known
        if not configured.trusted and not await admit(configured):
            await report(DENIED, f"the MCP server `{configured.name}` was not allowed to start; this run goes on without it")
            return None
        if known is not None:
            await known.stop()
        if self._ended:
            return None
        for secret in configured.secrets:
            self._learn_secret(secret)
        self._servers[configured.name] = started = server.McpServer(configured, place, self._limits, report)
        return started

    async def _make_tools(self, of: server.McpServer) -> list[tools.McpTool]:
        listed = await of.prepare() or ()
        return [tools.McpTool(self._names.assign_name(of.config.name, one.name), one, of) for one in listed]

    async def _drop_all_but(self, wanted: Mapping[str, str]) -> None:
        """Stops the servers that are no longer configured, or whose configuration has changed."""
        gone = [name for name, one in self._servers.items() if wanted.get(name) != one.config.subject]
        await _gather_all(self._servers.pop(name).stop() for name in gone)

    async def _report_problems(self, problems: Iterable[str], report: server.Report) -> None:
        """Reports each problem once: a bad file stays bad until the user fixes it."""
        problems = tuple(problems)
        self._reported.intersection_update(problems)
        for problem in problems:
            if problem not in self._reported:
                self._reported.add(problem)
                await report(CONFIG_INVALID, problem)


async def _cancel_all(tasks: list[asyncio.Task[list[tools.McpTool]]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _gather_all(work: Iterable[Awaitable[None]]) -> None:
    await asyncio.gather(*work)
