"""Builds the approval requests of a run: for a tool call, and for the trust in a folder. It reads what a call would change, but
decides nothing.

The subject is the call itself in one canonical spelling, with the folder where it will run. The approval is bound to the subject,
so approving one call approves no other.

The first run in a folder asks whether the user trusts the folder, before anything in it counts as an instruction. A denial does
not stop the run: it continues without the folder's instructions, and the session is not asked again. In a headless run nothing is
asked and none of the folder's instructions are read.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from switchtower.core import events, policy
from switchtower.core.ports import engine
from switchtower.engines.agent import trust
from switchtower.engines.agent.context import AgentRun, AgentServices
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
    """Returns exactly what the call will do, and to what. A file that changes after it was previewed yields another subject, and
    so does another `folder` at the workspace's path.
    """
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


TRUST_TOOL = "trust_folder"
_MOST_SHOWN = 5


async def request_trust(agent_run: AgentRun, services: AgentServices) -> None:
    task, folders = agent_run.task, services.trust
    if folders is None:
        return
    folder = task.workspace.origin or task.workspace.root
    if task.workspace.origin is not None:
        folders.register_worktree(task.workspace.root, task.workspace.origin)
    if await asyncio.to_thread(folders.is_trusted, folder):
        return
    contains = await asyncio.to_thread(trust.find_instructions, task.workspace.root)
    if not contains or folders.is_refused(task.session_id):
        return
    if task.headless or task.policy == "yolo":
        await agent_run.context.emit(
            events.WarningRaised(
                "FOLDER_NOT_TRUSTED",
                f"You have not trusted this folder, so its instructions were not read: {_join_contents(contains)}",
                "hint: `tower trust add` or `tower run --trust` trusts it",
            )
        )
        return
    answer = await agent_run.context.request_approval(_make_trust_question(folder, contains))
    if answer.verdict is events.Verdict.APPROVE:
        by = answer.by.name if answer.by is not None else ""
        await asyncio.to_thread(folders.add, folder, by=by, now_ms=services.now_ms())
    elif answer.verdict is not None:
        folders.record_refusal(task.session_id)


def _make_trust_question(folder: str, contains: tuple[str, ...]) -> engine.ApprovalQuestion:
    return engine.ApprovalQuestion(
        call_id=TRUST_TOOL,
        kind="trust",
        title="Trust this folder?",
        summary=f"{folder}: {_join_contents(contains)}",
        details={
            "tool": TRUST_TOOL,
            "folder": folder,
            "contains": list(contains),
            "reason": "its files would instruct the agent, here and in every folder below; deny to work without them",
        },
        subject=msgspec.json.encode([TRUST_TOOL, folder, contains]).decode(),
    )


def _join_contents(contains: tuple[str, ...]) -> str:
    more = len(contains) - _MOST_SHOWN
    return ", ".join(contains[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
