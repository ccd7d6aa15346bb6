"""A well-behaved MCP server, made with the official SDK. `friendly.py stdio`, or `friendly.py http FD` on a socket that listens
already, so that nobody has to wait until it is there."""

import asyncio
import base64
import os
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, ImageContent, TextContent, ToolAnnotations

server = MCPServer("friendly")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers"""
    return a + b


@server.tool()
def fail() -> str:
    raise ValueError("this never works")


@server.tool()
def environment() -> dict[str, str]:
    return dict(os.environ)


@server.tool()
def where() -> str:
    return f"{Path.cwd()} {os.getpid()}"


@server.tool()
async def count(to: int, ctx: Context) -> str:
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"at {number}")
    return "counted"


@server.tool()
async def wait(file: str) -> str:
    """Waits for ever; writes into the file that it began and whether it was cancelled."""
    Path(file).write_text("began")
    try:
        await anyio.sleep_forever()
    except BaseException:
        Path(file).write_text("cancelled")
        raise
    return "never"


@server.tool()
async def roots(ctx: Context) -> str:
    return " ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool and says that the tools changed."""
    server.add_tool(lambda: "grown", name="grown", description="was not there before")
    await ctx.session.send_tool_list_changed()
    await ctx.notify_tools_changed()
    return "there is a new tool"


@server.tool(structured_output=False)
def picture(size: int) -> CallToolResult:
    data = base64.b64encode(b"p" * size).decode()
    return CallToolResult(
        content=[TextContent(text="a picture"), ImageContent(data=data, mime_type="image/png")], _meta={"made": "here"}
    )


@server.tool()
def leave(code: int) -> str:
    os._exit(code)


@server.tool()
def background(marker: str) -> int:
    """Leaves a process behind that has its own session and says nothing."""
    program = [sys.executable, "-c", "import time; time.sleep(600)", marker]
    return subprocess.Popen(program, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid


@server.tool()
def long_text(length: int) -> str:
    return "0123456789" * (length // 10)


@server.tool()
async def headers(ctx: Context) -> dict[str, str]:
    return dict(ctx.headers or {})


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        asyncio.run(server.run_stdio_async())
    else:
        listener = socket.socket(fileno=int(sys.argv[2]))
        config = uvicorn.Config(server.streamable_http_app(), log_level="error")
        asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))
