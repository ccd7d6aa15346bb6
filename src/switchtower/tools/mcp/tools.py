"""One tool of an MCP server, as an agent sees it. Whatever the server does, a call ends with an output.

A CallToolResult becomes the text that a model reads, and the result itself for the journal. Both are bounded; a note replaces
each omitted part.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from switchtower.core import events
from switchtower.tools import outcome, safe_text
from switchtower.tools.mcp import connection, server, tool_list

if TYPE_CHECKING:
    import mcp_types


LONGEST_ARGUMENTS = 1024 * 1024


class McpTool:
    """Implements `registry.Tool`."""

    def __init__(self, name: str, listed: tool_list.ListedTool, of: server.McpServer) -> None:
        self.name = name
        self.description = listed.description or f"`{listed.name}` of the MCP server `{of.config.name}`"
        self.schema = listed.schema
        # The hint is the server's own claim: it counts when the server is the user's own.
        self.effect = outcome.ToolEffect.READ if listed.reads_only and of.config.trusted else outcome.ToolEffect.EXECUTE
        self._tool = listed.name
        self._server = of

    def check(self, args: Mapping[str, Any], context: outcome.ToolContext) -> None:
        """Checks loosely: the server validates the rest."""
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
            return convert_result(await self._server.call(self._tool, args, context.progress))
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


LONGEST_TEXT = 64 * 1024
LONGEST_BLOB = 256 * 1024
LONGEST_RESULT = 1024 * 1024
_MOST_PARTS = 256
_LONGEST_MESSAGE = 500


def convert_result(result: "mcp_types.CallToolResult") -> outcome.ToolOutput:
    spelled = result.model_dump(mode="json", by_alias=True, exclude_unset=True)
    bounded = _limit_result(spelled)
    text = _truncate("\n".join(filter(None, (_read(part) for part in spelled["content"]))) or _format_structured(spelled))
    if not result.is_error:
        return outcome.ToolOutput(text=text, result=bounded)
    message = text.strip() or "the tool failed and did not say why"
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[: _LONGEST_MESSAGE - 1]}…"
    error = events.ToolError(type=outcome.ToolErrorType.UNKNOWN.value, message=message, retryable=False)
    return outcome.ToolOutput(text=text or message, is_error=True, error=error, result=bounded)


def _read(part: dict[str, Any]) -> str:
    """Returns the text that a model reads of one part."""
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)}}:
            return f"[{_describe_part(part)}]\n{text}"
        case {"type": "resource_link"}:
            return f"[{_describe_part(part)}]"
        case _:
            return f"[{_describe_part(part)}, not shown]"


def _describe_part(part: dict[str, Any]) -> str:
    """Describes a part in a few words."""
    described = part.get("resource", part)
    words = [str(part.get("type")), *(str(described[key])[:200] for key in ("name", "uri", "mimeType") if key in described)]
    if (blob := described.get("data", described.get("blob"))) is not None:
        words.append(f"{len(blob.rstrip('=')) * 3 // 4} bytes")
    return ", ".join(words)


def _format_structured(spelled: dict[str, Any]) -> str:
    content = spelled.get("structuredContent")
    return "" if content is None else json.dumps(content, ensure_ascii=False)


def _limit_result(spelled: dict[str, Any]) -> dict[str, Any]:
    """Returns the result as a CallToolResult that a journal can store."""
    content: list[dict[str, Any]] = []
    room = LONGEST_RESULT
    for index, part in enumerate(spelled["content"]):
        part = _limit_part(part)
        room -= len(json.dumps(part))
        if room < 0 or index == _MOST_PARTS:
            content.append(_format_note(f"{len(spelled['content']) - index} more parts were left out"))
            break
        content.append(part)
    bounded = {"content": content, "isError": bool(spelled.get("isError"))}
    for extra in ("structuredContent", "_meta"):
        if extra in spelled and len(json.dumps(spelled[extra])) <= LONGEST_BLOB:
            bounded[extra] = spelled[extra]
        elif extra in spelled:
            content.append(_format_note(f"`{extra}` was left out: it is longer than {LONGEST_BLOB // 1024} KiB"))
    return bounded


def _limit_part(part: dict[str, Any]) -> dict[str, Any]:
    match part:
        case {"type": "text", "text": str(text)}:
            return {**part, "text": _truncate(text)} if len(text) > LONGEST_TEXT // 4 else part
        case _ if len(json.dumps(part)) > LONGEST_BLOB:
            return _format_note(f"{_describe_part(part)}: left out, as it is longer than {LONGEST_BLOB // 1024} KiB")
        case _:
            return part


def _format_note(text: str) -> dict[str, Any]:
    return {"type": "text", "text": f"[{text}]"}


def _truncate(text: str) -> str:
    kept = safe_text.HeadAndTail(LONGEST_TEXT)
    kept.add(text.encode(errors="replace"))
    return kept.render()
