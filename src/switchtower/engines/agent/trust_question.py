"""The first run in a folder asks whether the folder is trusted, before anything in it counts as an instruction.

A no is no reason to stop: the run goes ahead without the folder's instructions, and the session is not asked again. Where no
person can answer, nothing is asked and nothing of the folder is read.
"""

import asyncio

import msgspec

from switchtower.core import engine, events
from switchtower.engines.agent import trust
from switchtower.engines.agent.kit import AgentServices
from switchtower.engines.agent.work import AgentRun

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
