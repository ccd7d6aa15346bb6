"""MCP: tools from servers that others wrote, over stdio and streamable HTTP, with the official SDK. Hostile until shown
otherwise: everything that a server sends is bounded, and all that it starts ends with its session.

`Servers` is the door. Behind it `files` and `config` say which servers there are, `server` keeps one of them going,
`connection` talks to it over `stdio` or `http` with a `screen` between it and the SDK, `process` and `pipes` are its process,
and `tool`, `listing`, `naming` and `results` make it an agent's.
"""

from switchtower.tools.mcp.config import ServerConfig as ServerConfig
from switchtower.tools.mcp.process import kill_leftovers as kill_leftovers
from switchtower.tools.mcp.servers import McpServers as McpServers
from switchtower.tools.mcp.tools import McpTool as McpTool
