"""Executes the tool calls of one message: each is judged by the policy, approved where needed, run and reported. Reads run
concurrently, all other calls one by one.

The announcement is on disk before a tool acts. So after a crash a call that was announced may have acted, and is never run again;
only a call that still waits for its approval has certainly not acted.

The toolbox of a run has our tools and those of the session's MCP servers. A server that the workspace configures needs an
approval before it starts.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence

from switchtower.core import errors, events, policy
from switchtower.core.ports import engine
from switchtower.engines.agent import approvals
from switchtower.engines.agent.context import AgentRun, AgentServices, RunStopped
from switchtower.engines.agent.tools import AskUserTool, ReadSkillTool
from switchtower.extensions.ui import RunContextUi
from switchtower.tools import outcome, registry
from switchtower.tools.files import links, scope
from switchtower.tools.mcp import config
from switchtower.tools.mcp.config import ServerConfig

MOST_AT_ONCE = 8


async def execute_calls(calls: Sequence[events.ToolRequest], agent_run: AgentRun, messages: list[engine.Message]) -> None:
    """Appends a result for each call, in order. Raises `RunStopped` when a decision ends the run."""
    for group in _group_calls(calls, agent_run):
        if len(group) == 1:
            messages.append(await _run_call(group[0], agent_run))
        else:
            messages.extend(await _run_reads_concurrently(group, agent_run))


def _group_calls(calls: Sequence[events.ToolRequest], agent_run: AgentRun) -> Iterator[list[events.ToolRequest]]:
    """Groups adjacent reads that need no approval; every other call is alone in its group."""
    reads: list[events.ToolRequest] = []
    for call in calls:
        if _is_free_read(call, agent_run) and len(reads) < MOST_AT_ONCE:
            reads.append(call)
            continue
        if reads:
            yield reads
        reads = []
        if _is_free_read(call, agent_run):
            reads.append(call)
        else:
            yield [call]
    if reads:
        yield reads


def _is_free_read(call: events.ToolRequest, agent_run: AgentRun) -> bool:
    return (
        call.problem is None
        and call.call_id not in agent_run.task.called
        and agent_run.toolbox.get_effect(call.tool) is outcome.ToolEffect.READ
        and _judge(call, agent_run).ruling is policy.Ruling.ALLOW
    )


async def _run_reads_concurrently(calls: list[events.ToolRequest], agent_run: AgentRun) -> list[engine.Message]:
    for call in calls:
        await agent_run.context.emit(events.ToolCalled(call_id=call.call_id, tool=call.tool, args=call.args))
    await agent_run.context.emit(events.PhaseChanged("Executing tools", ", ".join(call.tool for call in calls)))
    await agent_run.context.flush()
    finished = await asyncio.gather(*(_execute(call, agent_run) for call in calls))
    # The results are reported in the order of the calls: a client that ignores call ids matches them by their order.
    return [
        await _record_result(call, agent_run, output, duration_ms=duration_ms)
        for call, (output, duration_ms) in zip(calls, finished, strict=True)
    ]


async def _run_call(call: events.ToolRequest, agent_run: AgentRun) -> engine.Message:
    announced = call.call_id in agent_run.task.called
    if announced and not _is_still_waiting(call, agent_run.task):
        return await _record_result(call, agent_run, _make_interruption())
    if not announced:
        await agent_run.context.emit(events.ToolCalled(call_id=call.call_id, tool=call.tool, args=call.args))
    if call.problem is not None:
        return await _record_result(call, agent_run, outcome.make_failure(outcome.ToolErrorType.UNKNOWN, call.problem))
    if (impossible := agent_run.toolbox.check(call.tool, call.args, _make_tool_context(call, agent_run))) is not None:
        return await _record_result(call, agent_run, impossible)

    judgement = await _judge_on_disk(call, agent_run)
    if judgement.ruling is policy.Ruling.DENY:
        return await _record_result(call, agent_run, _make_refusal(f"not allowed: {judgement.reason}"))
    if judgement.ruling is policy.Ruling.ASK and (refusal := await _request_approval(call, judgement, agent_run)) is not None:
        return refusal

    if (folder := await asyncio.to_thread(scope.find_identity, agent_run.task.workspace.root)) != agent_run.folder:
        change = "removed" if folder is None else "replaced by another"
        return await _record_result(
            call, agent_run, _make_refusal(f"not run: the workspace's folder was {change} since the run began")
        )
    effect = agent_run.toolbox.get_effect(call.tool)
    if effect is not outcome.ToolEffect.READ:
        await agent_run.changes.record_before()
    await agent_run.context.emit(events.PhaseChanged("Executing tool", call.tool))
    await agent_run.context.flush()
    output, duration_ms = await _execute(call, agent_run)
    return await _record_result(call, agent_run, output, duration_ms=duration_ms)


def _judge(call: events.ToolRequest, agent_run: AgentRun) -> policy.Judgement:
    return agent_run.policy.judge(call.tool, call.args, agent_run.toolbox.get_effect(call.tool), agent_run.task.workspace.root)


async def _judge_on_disk(call: events.ToolRequest, agent_run: AgentRun) -> policy.Judgement:
    """The policy judges text only. When the text alone allows a call, the paths in it are resolved on disk before the call
    runs.
    """
    judgement = _judge(call, agent_run)
    if judgement.ruling is not policy.Ruling.ALLOW or agent_run.policy.profile == "yolo":
        return judgement
    question = await asyncio.to_thread(links.find_question, agent_run.task.workspace.root, call.tool, call.args)
    if question is None:
        return judgement
    return policy.Judgement(policy.Ruling.ASK, question, destructive=judgement.destructive)


def _is_still_waiting(call: events.ToolRequest, task: engine.Task) -> bool:
    return task.pending_approval is not None and task.pending_approval.call_id == call.call_id


async def _request_approval(call: events.ToolRequest, judgement: policy.Judgement, agent_run: AgentRun) -> engine.Message | None:
    """Returns None when the call is approved."""
    preview = await registry.make_preview(call.tool, call.args, _make_tool_context(call, agent_run))
    if "problem" in preview:
        return await _record_result(call, agent_run, _make_refusal(f"not run: it cannot be shown: {preview['problem']}"))
    question = approvals.make_question(
        call, agent_run.task, judgement, agent_run.toolbox.get_effect(call.tool), preview, agent_run.folder
    )
    try:
        answer = await agent_run.context.request_approval(question)
    except errors.Unshowable as unshowable:
        return await _record_result(call, agent_run, _make_refusal(f"not run: {unshowable.message}"))
    if answer.verdict is events.Verdict.APPROVE:
        if answer.rule is not None:
            agent_run.policy = agent_run.policy.with_grant(answer.rule)
        now = await registry.make_preview(call.tool, call.args, _make_tool_context(call, agent_run))
        if approvals.make_subject(call, agent_run.task, now, agent_run.folder) != question.subject:
            changed = "not run: the file was changed after this was approved; look at it again"
            return await _record_result(call, agent_run, outcome.make_failure(outcome.ToolErrorType.STALE_FILE, changed))
        return None
    about = f"{question.title}: {question.summary}"
    if answer.verdict is None:
        await _record_result(call, agent_run, _make_refusal("not run: the approval expired before anybody decided"))
        raise RunStopped(engine.RunResult(events.Outcome.FAILED, f"the approval expired undecided ({about})"))
    comment = f": {answer.comment}" if answer.comment else ""
    refusal = await _record_result(call, agent_run, _make_refusal(f"denied{comment}"))
    # push, Headless Mode: no user can steer the run, so a denial always ends it, whatever else the denial contains.
    if agent_run.task.headless or answer.verdict is events.Verdict.DENY_STOP:
        raise RunStopped(engine.RunResult(events.Outcome.DENIED, f"denied{comment} ({about})"))
    return refusal


async def _execute(call: events.ToolRequest, agent_run: AgentRun) -> tuple[outcome.ToolOutput, int]:
    started = time.monotonic()
    output = await agent_run.toolbox.execute(call.tool, call.args, _make_tool_context(call, agent_run))
    return output, round((time.monotonic() - started) * 1_000)


def _make_tool_context(call: events.ToolRequest, agent_run: AgentRun) -> outcome.ToolContext:
    async def progress(text: str) -> None:
        await agent_run.context.emit(events.ToolProgressed(call.call_id, text))

    return outcome.ToolContext(
        workspace=agent_run.task.workspace.root,
        run_id=agent_run.task.run_id,
        session_id=agent_run.task.session_id,
        call_id=call.call_id,
        sandbox=agent_run.task.sandbox,
        progress=progress,
    )


def _make_refusal(message: str) -> outcome.ToolOutput:
    return outcome.make_failure(outcome.ToolErrorType.EDIT_GUARD_BLOCKED, message)


def _make_interruption() -> outcome.ToolOutput:
    message = "interrupted by a restart; whether it took effect is unknown, so it was not run again"
    return outcome.make_failure(outcome.ToolErrorType.UNKNOWN, message)


async def _record_result(
    call: events.ToolRequest, agent_run: AgentRun, output: outcome.ToolOutput, *, duration_ms: int = 0
) -> engine.Message:
    await agent_run.context.emit(
        events.ToolFinished(
            call_id=call.call_id,
            tool=call.tool,
            duration_ms=duration_ms,
            text=output.text,
            is_error=output.is_error,
            error=output.error,
            result=output.result,
        )
    )
    return engine.Message(role="tool", text=output.text, call_id=call.call_id, tool=call.tool, is_error=output.is_error)


TOOL = "mcp_server"
"""The tool name that rules use for the start of a server."""


async def assemble_toolbox(agent_run: AgentRun, services: AgentServices) -> registry.Toolbox:
    """Returns our tools, the servers' tools, `read_skill` where there are skills, and `ask_user` where a user can answer. A
    server that was denied or cannot start is reported and left out.
    """

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


def _list_preset_servers(preset: events.Preset) -> config.SessionServers:
    """A preset of the workspace came with it, as its `.mcp.json` did, so its servers need an approval as well."""
    return config.SessionServers(preset.servers, preset.file, trusted=preset.origin == "user")


async def _is_admitted(config: ServerConfig, agent_run: AgentRun) -> bool:
    """Without this approval, any person who can write a workspace's `.mcp.json` could have any program started."""
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
    # In a headless run, the denial comes from a client that knows nothing of servers, and the run can often continue without
    # them.
    if answer.verdict is events.Verdict.DENY_STOP and not agent_run.task.headless:
        raise RunStopped(engine.RunResult(events.Outcome.DENIED, f"denied (Start an MCP server: {config.name})"))
    return answer.verdict is events.Verdict.APPROVE


def _describe_always(judgement: policy.Judgement) -> dict[str, object]:
    return {"always": policy.describe_always(judgement.always)} if judgement.always is not None else {}
