"""MCP: tools from foreign servers, over stdio and streamable HTTP, with the official SDK. Servers are treated as hostile:
everything that a server sends is bounded, and every process that it starts ends with its session.

`McpServers` in `servers` is the entry point. `config_files` and `config` read the configured servers, `server` manages one of
them, `connection` talks to it over `transports` with `message_filter` between it and the SDK, `process` and `pipes` are its
process, and `tools` and `tool_list` offer its tools to an agent.
"""

from switchtower.tools.mcp.config import ServerConfig as ServerConfig
from switchtower.tools.mcp.process import kill_leftovers as kill_leftovers
from switchtower.tools.mcp.servers import McpServers as McpServers
from switchtower.tools.mcp.tools import McpTool as McpTool
