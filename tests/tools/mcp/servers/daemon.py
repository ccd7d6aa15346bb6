"""A daemon of sorts, which adopts orphans: starts the servers of a workspace and says which tools there are. Then it calls the
tool that it was given and leaves, or waits to be killed."""

import asyncio
import os
import sys

from switchtower.tools import mcp, outcome
from switchtower.tools.processes import commands


async def main(workspace: str, session_id: str, daemon_id: str, called: str = "") -> None:
    async def admit(server: mcp.ServerConfig) -> bool:
        return True

    async def report(code: str, message: str) -> None:
        print(code, message, flush=True)

    commands.become_subreaper()
    servers = mcp.McpServers(None, environment=lambda: {**os.environ, "TOWER_DAEMON": daemon_id})
    tools = await servers.list_tools(session_id, workspace, sandbox="local", admit=admit, report=report)
    print(*(tool.name for tool in tools), flush=True)
    for tool in tools:
        if tool.name == called:
            print((await tool.execute({}, outcome.ToolContext(workspace, "run_of_a_test"))).text, flush=True)
            await servers.close()
            return
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
