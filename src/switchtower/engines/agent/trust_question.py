"""The first run in a folder asks whether the folder is trusted, before anything in it counts as an instruction.

A no is no reason to stop: the run goes ahead without the folder's instructions, and the session is not asked again. Where no
person can answer, nothing is asked and nothing of the folder is read.
"""

import asyncio

import msgspec

from switchtower.core import engine, events
from switchtower.engines.agent import trust
from switchtower.engines.agent.kit import Kit
from switchtower.engines.agent.work import Work

TOOL = "trust_folder"
_MOST_SHOWN = 5


async def ask(work: Work, kit: Kit) -> None:
    task, folders = work.task, kit.trust
    if folders is None:
        return
    folder = task.workspace.origin or task.workspace.root
    if task.workspace.origin is not None:
        folders.know_worktree(task.workspace.root, task.workspace.origin)
    if await asyncio.to_thread(folders.is_trusted, folder):
        return
    contains = await asyncio.to_thread(trust.found_instructions, task.workspace.root)
    if not contains or folders.is_refused_in(task.session_id):
        return
    if task.headless or task.policy == "yolo":
        await work.desk.emit(
            events.WarningRaised(
                "FOLDER_NOT_TRUSTED",
                f"You have not trusted this folder, so its instructions were not read: {_named(contains)}",
                "hint: `tower trust add` or `tower run --trust` trusts it",
            )
        )
        return
    answer = await work.desk.ask(_question(folder, contains))
    if answer.verdict is events.Verdict.APPROVE:
        by = answer.by.name if answer.by is not None else ""
        await asyncio.to_thread(folders.add, folder, by=by, now_ms=kit.now_ms())
    elif answer.verdict is not None:
        folders.refuse_in(task.session_id)


def _question(folder: str, contains: tuple[str, ...]) -> engine.Question:
    return engine.Question(
        call_id=TOOL,
        kind="trust",
        title="Trust this folder?",
        summary=f"{folder}: {_named(contains)}",
        details={
            "tool": TOOL,
            "folder": folder,
            "contains": list(contains),
            "reason": "its files would instruct the agent, here and in every folder below; deny to work without them",
        },
        subject=msgspec.json.encode([TOOL, folder, contains]).decode(),
    )


def _named(contains: tuple[str, ...]) -> str:
    more = len(contains) - _MOST_SHOWN
    return ", ".join(contains[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
