"""One tool of an MCP server, as an agent sees it. Whatever the server does, a call ends with an output."""

import json
from collections.abc import Mapping
from typing import Any

from switchtower.tools import outcome
from switchtower.tools.mcp import connection, listing, results, server

LONGEST_ARGUMENTS = 1024 * 1024


class McpTool:
    """Implements `registry.Tool`."""

    def __init__(self, name: str, listed: listing.ListedTool, of: server.McpServer) -> None:
        self.name = name
        self.description = listed.description or f"`{listed.name}` of the MCP server `{of.config.name}`"
        self.schema = listed.schema
        # The hint is the server's own word: it counts when the server is the user's own.
        self.effect = outcome.ToolEffect.READ if listed.reads_only and of.config.trusted else outcome.ToolEffect.EXECUTE
        self._tool = listed.name
        self._server = of

    def check(self, args: Mapping[str, Any], context: outcome.ToolContext) -> None:
        """Loosely: the server judges the rest."""
        try:
            length = len(json.dumps(dict(args)))
        except (TypeError, ValueError, RecursionError):
            raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, "the arguments must be a JSON object") from None
        if length > LONGEST_ARGUMENTS:
            message = f"the arguments are longer than {LONGEST_ARGUMENTS // 1024} KiB; hint: send less at a time"
            raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, message)

    async def execute(self, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput:
        self.check(args, context)
        try:
            return results.convert_result(await self._server.call(self._tool, args, context.progress))
        except connection.McpTimedOut as error:
            return outcome.make_failure(outcome.ToolErrorType.EXEC_TIMEOUT, self._format_error(error), retryable=True)
        except connection.McpConnectionEnded as error:
            return outcome.make_failure(outcome.ToolErrorType.UNKNOWN, self._format_error(error), retryable=True)
        except connection.McpCallRefused as error:
            return outcome.make_failure(
                outcome.ToolErrorType.UNKNOWN, f"the MCP server `{self._server.config.name}` answered: {error}"
            )

    async def end_run(self, run_id: str) -> None:
        """The server stays for the session's next runs."""

    def _format_error(self, error: Exception) -> str:
        return f"the MCP server `{self._server.config.name}` {error}"
