"""A daemon of sorts: starts the servers of a workspace, says which tools there are, and waits to be killed."""

import asyncio
import os
import sys

from switchtower.tools import mcp


async def main(workspace: str, session_id: str, daemon_id: str) -> None:
    async def admit(server: mcp.ServerConfig) -> bool:
        return True

    async def report(code: str, message: str) -> None:
        print(code, message, flush=True)

    servers = mcp.Servers(None, environment=lambda: {**os.environ, "TOWER_DAEMON": daemon_id})
    tools = await servers.tools_for(session_id, workspace, sandbox="local", admit=admit, report=report)
    print(*(tool.name for tool in tools), flush=True)
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
