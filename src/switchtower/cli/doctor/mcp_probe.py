"""Starts an MCP server, lists its tools, and stops it again together with every process that it started."""

import asyncio
import os
import secrets
import time
from functools import partial
from pathlib import Path

from msgspec import Struct

from switchtower import config
from switchtower.tools import concurrency
from switchtower.tools.mcp import config_files, server
from switchtower.tools.mcp.config import ServerConfig
from switchtower.tools.mcp.tool_list import ListedTool
from switchtower.tools.sandboxes import sandbox

TIMEOUT = 20.0


class ProbeResult(Struct, frozen=True):
    name: str
    tools: tuple[ListedTool, ...] | None
    """None when the list could not be fetched."""
    told: tuple[str, ...]
    """Errors and notices for the user."""
    seconds: float

    @property
    def is_ok(self) -> bool:
        return self.tools is not None


def find_servers(settings: config.Settings, folder: Path) -> config_files.FoundServers:
    """Finds the servers that a session in this folder would use."""
    return config_files.find_servers(str(folder), settings.mcp_file, os.environ)


async def probe_server(
    configured: ServerConfig, settings: config.Settings, folder: Path, timeout_s: float = TIMEOUT
) -> ProbeResult:
    """Probes one server. A server from the folder's own file runs in the configured sandbox, as in a session."""
    told: list[str] = []

    async def report(code: str, sentence: str) -> None:
        told.append(sentence)

    place = server.ServerLocation(
        f"probe_{secrets.token_hex(4)}",
        str(folder),
        sandbox.find_best_available()[0] if settings.sandbox == "auto" else settings.sandbox,
        dict(os.environ),
        partial(sandbox.choose_sandbox, network=settings.sandbox_network),
    )
    tried = server.McpServer(configured, place, server.ServerLimits(start_s=timeout_s), report)
    started = time.monotonic()
    try:
        tools = await tried.prepare()
    finally:
        await concurrency.run_to_completion(tried.stop())
    return ProbeResult(configured.name, tools, tuple(told), time.monotonic() - started)


async def probe_servers(
    settings: config.Settings, folder: Path, timeout_s: float = TIMEOUT, *, own_only: bool = True
) -> list[ProbeResult]:
    """Probes the servers concurrently. With `own_only`, it does not start servers that came with the folder."""
    servers = [one for one in find_servers(settings, folder).servers if one.trusted or not own_only]
    return await asyncio.gather(*(probe_server(one, settings, folder, timeout_s) for one in servers))
