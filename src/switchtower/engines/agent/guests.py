"""The tools of one run: ours, and those of the session's MCP servers, of which a workspace's own are asked about first."""

import asyncio

from switchtower.core import engine, errors, events, policy
from switchtower.engines.agent.ask_tool import AskUserTool
from switchtower.engines.agent.kit import AgentServices
from switchtower.engines.agent.skill_tool import ReadSkillTool
from switchtower.engines.agent.work import RunStopped, AgentRun
from switchtower.extensions.ui import RunContextUi
from switchtower.tools import registry
from switchtower.tools.mcp import files
from switchtower.tools.mcp.config import ServerConfig

TOOL = "mcp_server"
"""The name that rules know the start of a server by."""


async def assemble_toolbox(agent_run: AgentRun, services: AgentServices) -> registry.Toolbox:
    """Our tools, the servers' and, where there are skills, the one that reads them; where somebody is there, the one that
    asks. A server that may not or cannot be had is reported and left out."""

    async def admit(config: ServerConfig) -> bool:
        return await _is_admitted(config, agent_run)

    async def report(code: str, message: str) -> None:
        await agent_run.context.emit(events.WarningRaised(code, message))

    task = agent_run.task
    tools = await services.servers.list_tools(
        task.session_id,
        task.workspace.root,
        sandbox=task.sandbox,
        admit=admit,
        report=report,
        handed=_list_preset_servers(task.preset) if task.preset is not None else None,
    )
    templates = await asyncio.to_thread(services.prompts.list_templates, task.workspace.root)
    skills = [ReadSkillTool(services.prompts)] if any(template.kind == "skill" for template in templates) else []
    ui = RunContextUi(agent_run.context.open_dialog, services.now_ms, timeout=services.dialog_timeout, headless=task.headless)
    asking = [] if task.headless else [AskUserTool(ui)]
    return registry.Toolbox([*services.toolbox.tools, *skills, *tools, *asking])


def _list_preset_servers(preset: events.Preset) -> files.SessionServers:
    """A preset of the workspace came with it, as its `.mcp.json` did: its servers are asked about as well."""
    return files.SessionServers(preset.servers, preset.file, trusted=preset.origin == "user")


async def _is_admitted(config: ServerConfig, agent_run: AgentRun) -> bool:
    """A person who can write a workspace's `.mcp.json` could otherwise have any program started."""
    args = {"name": config.name, **config.shown}
    judgement = agent_run.policy.judge(TOOL, args, workspace=agent_run.task.workspace.root)
    if judgement.ruling is not policy.Ruling.ASK:
        return judgement.ruling is policy.Ruling.ALLOW
    question = engine.ApprovalQuestion(
        call_id=f"{TOOL}_{config.name}",
        kind="mcp",
        title="Start an MCP server",
        summary=f"{config.name}: {args.get('command') or args.get('url')}",
        details={"tool": TOOL, **args, "reason": judgement.reason, **_describe_always(judgement)},
        subject=config.subject,
        rule=judgement.always,
    )
    try:
        answer = await agent_run.context.request_approval(question)
    except errors.Unshowable as unshowable:
        message = f"The MCP server {config.name} was not started: {unshowable.message}"
        await agent_run.context.emit(events.WarningRaised(unshowable.code, message))
        return False
    if answer.rule is not None:
        agent_run.policy = agent_run.policy.with_grant(answer.rule)
    # Headless, a denial is the answer of a client that was told nothing of servers: the work may well do without.
    if answer.verdict is events.Verdict.DENY_STOP and not agent_run.task.headless:
        raise RunStopped(engine.RunResult(events.Outcome.DENIED, f"denied (Start an MCP server: {config.name})"))
    return answer.verdict is events.Verdict.APPROVE


def _describe_always(judgement: policy.Judgement) -> dict[str, object]:
    return {"always": policy.describe_always(judgement.always)} if judgement.always is not None else {}
