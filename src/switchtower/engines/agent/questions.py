"""What a person is asked before a tool acts. Pure: from a call to the question about it.

The subject is the call itself in one canonical spelling; the approval is bound to it, so a yes to one call is a yes to no other.
"""

import msgspec

from switchtower.core import engine, events, policy

_LONGEST_PREVIEW = 2000
_LONGEST_SUMMARY = 200


def about(call: events.ToolRequest, workspace: str, reason: str) -> engine.Question:
    kind, title, summary, details = _described(call, workspace)
    return engine.Question(
        call_id=call.call_id,
        kind=kind,
        title=title,
        summary=summary,
        details={"tool": call.tool, **details, "reason": reason},
        subject=msgspec.json.encode({"tool": call.tool, "args": call.args}, order="sorted").decode(),
    )


def _described(call: events.ToolRequest, workspace: str) -> tuple[str, str, str, dict[str, object]]:
    if call.tool in policy.COMMANDS:
        command = str(call.args.get("command", ""))
        return "exec", "Run a command", _first_line(command), {"command": command, "cwd": workspace}
    if call.tool in policy.WRITES:
        path, content = str(call.args.get("path", "")), str(call.args.get("content", ""))
        size = len(content.encode(errors="replace"))
        details: dict[str, object] = {"path": path, "bytes": size, "preview": _cut(content, _LONGEST_PREVIEW)}
        return "write", "Write a file", f"{_first_line(path)} ({size} bytes)", details
    return "tool", f"Use the tool {call.tool}", _first_line(str(call.args)), {"args": call.args}


def _first_line(text: str) -> str:
    line, *more = text.strip().splitlines() or [""]
    return _cut(line, _LONGEST_SUMMARY) + (" …" if more else "")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]} …"
