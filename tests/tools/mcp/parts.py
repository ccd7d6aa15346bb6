"""A workspace with servers in its `.mcp.json`, and one session in it."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from switchtower.tools import mcp, outcome, registry
from switchtower.tools.running import proc

SERVERS = Path(__file__).parent / "servers"


def friendly(**more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / "friendly.py"), "stdio"], **more}


def hostile(way: str, *arguments: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / "hostile.py"), way, *arguments], **more}


class Bench:
    """One session in one workspace."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.user_file = folder / "mcp.json"
        self.session_id = f"sess_{uuid4().hex}"
        self.daemon_id = uuid4().hex
        self.variables: dict[str, str] = {"PATH": os.environ["PATH"], "HOME": str(folder), "TOWER_DAEMON": self.daemon_id}
        self.asked: list[mcp.ServerConfig] = []
        self.reports: list[tuple[str, str]] = []
        self.learnt: list[str] = []
        self.progress: list[str] = []
        self.admits = True
        self.servers = self.manager()

    def manager(self, **options: Any) -> mcp.Servers:
        """With more patience than the default's: a test may share its machine with many others."""
        options = {"start_s": 60.0, **options}
        self.servers = mcp.Servers(self.user_file, environment=lambda: self.variables, learn_secret=self.learnt.append, **options)
        return self.servers

    def configure(self, servers: Mapping[str, Any], *, own: bool = False) -> None:
        file = self.user_file if own else self.workspace / ".mcp.json"
        file.write_text(json.dumps({"mcpServers": dict(servers)}))

    async def tools(self, *, sandbox: str = "local") -> dict[str, registry.Tool]:
        tools = await self.servers.tools_for(
            self.session_id, str(self.workspace), sandbox=sandbox, admit=self._admit, report=self._report
        )
        assert len({tool.name for tool in tools}) == len(tools)
        return {tool.name: tool for tool in tools}

    async def call(self, tool: registry.Tool, **args: Any) -> outcome.ToolOutput:
        return await tool.execute(args, self.context())

    def context(self) -> outcome.ToolContext:
        return outcome.ToolContext(workspace=str(self.workspace), run_id="run_of_a_test", progress=self._progress)

    def codes(self) -> list[str]:
        return [code for code, _ in self.reports]

    def told(self) -> str:
        return "\n".join(message for _, message in self.reports)

    def processes(self) -> list[int]:
        """What carries this session's mark."""
        mark = f"TOWER_RUN=mcp_{self.session_id}".encode()
        return [pid for pid in proc.all_pids() if any(variable.startswith(mark) for variable in proc.environment_of(pid) or ())]

    async def _admit(self, server: mcp.ServerConfig) -> bool:
        self.asked.append(server)
        return self.admits

    async def _report(self, code: str, message: str) -> None:
        self.reports.append((code, message))

    async def _progress(self, text: str) -> None:
        self.progress.append(text)
