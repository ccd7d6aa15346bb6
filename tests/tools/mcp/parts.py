"""A workspace with servers in its `.mcp.json`, and one session in it."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from switchtower.tools import mcp, outcome, registry
from switchtower.tools.processes import proc

SERVERS = Path(__file__).parent / "servers"


def make_well_behaved(**more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / "friendly.py"), "stdio"], **more}


def make_hostile(way: str, *arguments: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / "hostile.py"), way, *arguments], **more}


class McpSessionHarness:
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
        self.servers = self.make_manager()

    def make_manager(self, **options: Any) -> mcp.McpServers:
        """With more patience than the default's: a test may share its machine with many others."""
        options = {"start_s": 60.0, **options}
        self.servers = mcp.McpServers(
            self.user_file, environment=lambda: self.variables, learn_secret=self.learnt.append, **options
        )
        return self.servers

    def configure(self, servers: Mapping[str, Any], *, own: bool = False) -> None:
        file = self.user_file if own else self.workspace / ".mcp.json"
        file.write_text(json.dumps({"mcpServers": dict(servers)}))

    async def list_tools(self, *, sandbox: str = "local") -> dict[str, registry.Tool]:
        tools = await self.servers.list_tools(
            self.session_id, str(self.workspace), sandbox=sandbox, admit=self._decide_server, report=self._report
        )
        assert len({tool.name for tool in tools}) == len(tools)
        return {tool.name: tool for tool in tools}

    async def call(self, tool: registry.Tool, **args: Any) -> outcome.ToolOutput:
        return await tool.execute(args, self.make_context())

    def make_context(self) -> outcome.ToolContext:
        return outcome.ToolContext(workspace=str(self.workspace), run_id="run_of_a_test", progress=self._record_progress)

    def list_codes(self) -> list[str]:
        return [code for code, _ in self.reports]

    def read_reports(self) -> str:
        return "\n".join(message for _, message in self.reports)

    def list_processes(self) -> list[int]:
        """What carries this session's mark."""
        mark = f"TOWER_RUN=mcp_{self.session_id}".encode()
        return [
            pid for pid in proc.list_pids() if any(variable.startswith(mark) for variable in proc.read_environment(pid) or ())
        ]

    async def _decide_server(self, server: mcp.ServerConfig) -> bool:
        self.asked.append(server)
        return self.admits

    async def _report(self, code: str, message: str) -> None:
        self.reports.append((code, message))

    async def _record_progress(self, text: str) -> None:
        self.progress.append(text)
