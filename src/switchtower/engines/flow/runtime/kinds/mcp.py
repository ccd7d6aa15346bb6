"""The kind `mcp.call`: one tool of one MCP server, which the step configures itself: at a `url`, or as a `command` with `args`
and `env` when the run may start programs. A server stays connected for later steps, and ends with the run.
"""

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from switchtower.engines.flow.runtime import event_buffer, failures, values
from switchtower.engines.flow.runtime.kinds import port
from switchtower.tools.mcp import config, connection, server, tools
from switchtower.tools.sandboxes import sandbox


class McpCallKind:
    summary = "Call a tool of an MCP server; the server stays up until the run ends"
    inputs: ClassVar[Mapping[str, str]] = {
        "tool": "the tool's name",
        "arguments": "what it is given",
        "url": "the server's address; or `command`",
        "command": "the program that is the server; needs `--allow-shell`",
        "args": "a list of arguments of the program",
        "env": "variables of the program",
        "headers": "for a server at a `url`",
        "server": "a name for the server, in messages",
    }
    outputs: ClassVar[Mapping[str, str]] = {
        "text": "what the tool answered",
        "result": "the whole result",
    }

    def __init__(self) -> None:
        self._servers: dict[str, server.McpServer] = {}

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        tool, arguments = values.get_text(given, "tool"), given.get("arguments") or {}
        if not isinstance(arguments, Mapping):
            raise failures.StepFailed("`arguments` are not names and values")
        chosen = self._get_server(_configure_server(given, context), context)

        async def tell(text: str) -> None:
            context.log("info", text.rstrip())

        try:
            result = await chosen.call(tool, arguments, tell)
        except (connection.McpConnectionEnded, connection.McpTimedOut) as trouble:
            raise failures.StepFailed(f"the MCP server {trouble}", retriable=True) from None
        except connection.McpCallRefused as refused:
            raise failures.StepFailed(f"the MCP server refused the call: {refused}") from None
        output = tools.convert_result(result)
        if output.is_error:
            raise failures.StepFailed(f"the tool failed: {event_buffer.clip_text(output.text, 500)}", retriable=True)
        return {"text": output.text, "result": output.result}

    def _get_server(self, configured: config.ServerConfig, context: port.StepContext) -> server.McpServer:
        key = f"{context.setting.run_id} {configured.subject}"
        if key not in self._servers:
            place = server.ServerLocation(
                context.setting.run_id, context.setting.workspace, "local", dict(os.environ), sandbox.choose_sandbox
            )
            self._servers[key] = server.McpServer(configured, place, server.ServerLimits(), partial(_report, context))
            context.setting.closings["mcp"] = self._close
        return self._servers[key]

    async def _close(self) -> None:
        servers, self._servers = [*self._servers.values()], {}
        await asyncio.gather(*(one.stop() for one in servers))


async def _report(context: port.StepContext, code: str, sentence: str) -> None:
    context.setting.events.add_log("warning", sentence)


def _configure_server(given: Mapping[str, Any], context: port.StepContext) -> config.ServerConfig:
    name = values.get_text(given, "server", "server")
    if "command" in given and not context.setting.allow_shell:
        raise failures.StepFailed("to start an MCP server is not allowed here; hint: the run's `allow_shell` option allows it")
    arguments = given.get("args") or []
    if not isinstance(arguments, list):
        raise failures.StepFailed("`args` is not a list")
    entry = config.ServerEntry(
        command=values.get_text(given, "command") if "command" in given else None,
        args=tuple(str(argument) for argument in arguments),
        env=values.get_texts(given, "env"),
        url=values.get_text(given, "url") if "url" in given else None,
        headers=values.get_texts(given, "headers"),
    )
    workspace = context.setting.workspace
    try:
        # No `${VAR}` is expanded: a flow may come from anywhere, and must not read the runtime's variables.
        configured = config.configure_server(name, entry, trusted=True, file="the flow", workspace=workspace, variables={})
    except (config.InvalidServerEntry, config.ExpansionError) as error:
        raise failures.StepFailed(f"the MCP server cannot be used: {error}") from None
    assert configured is not None, "no step switches its own server off"
    return configured
