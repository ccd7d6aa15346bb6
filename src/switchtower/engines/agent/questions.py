"""What a person is asked before a tool acts. Pure: from a call, and a look at what it would do, to the question about it.

The subject is the call itself in one canonical spelling, with the place where it will run; the approval is bound to it, so a
yes to one call is a yes to no other.
"""

from collections.abc import Mapping

import msgspec

from switchtower.core import engine, events, policy
from switchtower.tools.outcome import ToolEffect

_LONGEST_SUMMARY = 200

_TITLES = {"write_file": "Write a file", "edit_file": "Edit a file", "git_commit": "Commit", "run": "Run a command"}


def make_question(
    call: events.ToolRequest,
    task: engine.Task,
    judgement: policy.Judgement,
    effect: ToolEffect | None,
    preview: Mapping[str, object],
    folder: tuple[int, int],
) -> engine.ApprovalQuestion:
    details: dict[str, object] = {"tool": call.tool, **_select_arguments(call, task), **preview, "reason": judgement.reason}
    if judgement.reasons:
        details["reasons"] = list(judgement.reasons)
    if judgement.destructive:
        details["destructive"] = True
    if judgement.always is not None:
        details["always"] = policy.describe_always(judgement.always)
    return engine.ApprovalQuestion(
        call_id=call.call_id,
        kind=_get_kind(call.tool, effect),
        title=_TITLES.get(call.tool, f"Use the tool {call.tool}"),
        summary=_summarize_call(call),
        details=details,
        subject=make_subject(call, task, preview, folder),
        rule=judgement.always,
    )


def make_subject(call: events.ToolRequest, task: engine.Task, preview: Mapping[str, object], folder: tuple[int, int]) -> str:
    """Exactly what will happen, and to what: a file that changes after it was looked at makes this another subject, and so
    does another `folder` at the workspace's path."""
    return msgspec.json.encode(
        {
            "tool": call.tool,
            "args": call.args,
            "workspace": task.workspace.root,
            "folder": folder,
            "sandbox": task.sandbox,
            "diff": preview.get("diff"),
        },
        order="sorted",
    ).decode()


def _get_kind(tool: str, effect: ToolEffect | None) -> str:
    if tool == "git_commit":
        return "commit"
    if tool == "run":
        return "exec"
    return "write" if effect is ToolEffect.WRITE else "tool"


def _select_arguments(call: events.ToolRequest, task: engine.Task) -> dict[str, object]:
    match call.tool:
        case "run":
            return {"command": str(call.args.get("command", "")), "cwd": task.workspace.root, "sandbox": task.sandbox}
        case "write_file" | "edit_file":
            return {"path": str(call.args.get("path", ""))}
        case "git_commit":
            return {"message": str(call.args.get("message", ""))}
        case _:
            return {"args": call.args}


def _summarize_call(call: events.ToolRequest) -> str:
    match call.tool:
        case "run":
            return _take_first_line(str(call.args.get("command", "")))
        case "write_file":
            size = len(str(call.args.get("content", "")).encode(errors="replace"))
            return f"{_take_first_line(str(call.args.get('path', '')))} ({size} bytes)"
        case "edit_file":
            return _take_first_line(str(call.args.get("path", "")))
        case "git_commit":
            return _take_first_line(str(call.args.get("message", "")))
        case _:
            return _take_first_line(str(call.args))


def _take_first_line(text: str) -> str:
    line, *more = text.strip().splitlines() or [""]
    return _truncate(line, _LONGEST_SUMMARY) + (" …" if more else "")


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]} …"
