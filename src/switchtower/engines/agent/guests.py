"""The tools of one run: ours, and those of the session's MCP servers, of which a workspace's own are asked about first."""

import asyncio

from switchtower.core import engine, errors, events, policy
from switchtower.engines.agent.ask_tool import AskUser
from switchtower.engines.agent.kit import Kit
from switchtower.engines.agent.skill_tool import ReadSkill
from switchtower.engines.agent.work import Stopped, Work
from switchtower.extensions.ui import DeskUi
from switchtower.tools import registry
from switchtower.tools.mcp import files
from switchtower.tools.mcp.config import ServerConfig

TOOL = "mcp_server"
"""The name that rules know the start of a server by."""


async def welcome(work: Work, kit: Kit) -> registry.Toolbox:
    """Our tools, the servers' and, where there are skills, the one that reads them; where somebody is there, the one that
    asks. A server that may not or cannot be had is reported and left out."""

    async def admit(config: ServerConfig) -> bool:
        return await _admitted(config, work)

    async def report(code: str, message: str) -> None:
        await work.desk.emit(events.WarningRaised(code, message))

    task = work.task
    tools = await kit.servers.tools_for(
        task.session_id,
        task.workspace.root,
        sandbox=task.sandbox,
        admit=admit,
        report=report,
        handed=_handed(task.preset) if task.preset is not None else None,
    )
    templates = await asyncio.to_thread(kit.shelf.listed, task.workspace.root)
    skills = [ReadSkill(kit.shelf)] if any(template.kind == "skill" for template in templates) else []
    ui = DeskUi(work.desk.consult, kit.now_ms, timeout=kit.dialog_timeout, headless=task.headless)
    asking = [] if task.headless else [AskUser(ui)]
    return registry.Toolbox([*kit.toolbox.tools, *skills, *tools, *asking])


def _handed(preset: events.Preset) -> files.Handed:
    """A preset of the workspace came with it, as its `.mcp.json` did: its servers are asked about as well."""
    return files.Handed(preset.servers, preset.file, trusted=preset.origin == "user")


async def _admitted(config: ServerConfig, work: Work) -> bool:
    """A person who can write a workspace's `.mcp.json` could otherwise have any program started."""
    args = {"name": config.name, **config.shown}
    judgement = work.policy.judge(TOOL, args, workspace=work.task.workspace.root)
    if judgement.ruling is not policy.Ruling.ASK:
        return judgement.ruling is policy.Ruling.ALLOW
    question = engine.Question(
        call_id=f"{TOOL}_{config.name}",
        kind="mcp",
        title="Start an MCP server",
        summary=f"{config.name}: {args.get('command') or args.get('url')}",
        details={"tool": TOOL, **args, "reason": judgement.reason, **_always(judgement)},
        subject=config.subject,
        rule=judgement.always,
    )
    try:
        answer = await work.desk.ask(question)
    except errors.Unshowable as unshowable:
        message = f"The MCP server {config.name} was not started: {unshowable.message}"
        await work.desk.emit(events.WarningRaised(unshowable.code, message))
        return False
    if answer.rule is not None:
        work.policy = work.policy.granting(answer.rule)
    # Headless, a denial is the answer of a client that was told nothing of servers: the work may well do without.
    if answer.verdict is events.Verdict.DENY_STOP and not work.task.headless:
        raise Stopped(engine.Result(events.Outcome.DENIED, f"denied (Start an MCP server: {config.name})"))
    return answer.verdict is events.Verdict.APPROVE


def _always(judgement: policy.Judgement) -> dict[str, object]:
    return {"always": policy.describe_always(judgement.always)} if judgement.always is not None else {}
