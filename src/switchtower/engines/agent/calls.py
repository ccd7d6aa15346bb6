"""One tool call from its announcement to its result: judged, asked about where needed, run, told.

The announcement is on disk before a tool acts. So after a crash a call that was announced may have acted, and is never
run again; only one that still waits for its approval certainly has not.
"""

import time

from msgspec import Struct

from switchtower.core import engine, events, policy
from switchtower.engines.agent import questions
from switchtower.tools import outcome, registry


class Settled(Struct, frozen=True):
    """A call's result, and the end of the run when it brought that about."""

    message: engine.Message
    stop: engine.Result | None = None


async def settle(call: events.ToolRequest, task: engine.Task, desk: engine.Desk, toolbox: registry.Toolbox) -> Settled:
    announced = call.call_id in task.called
    if announced and not _still_waits(call, task):
        return await _finish(call, desk, _interrupted())
    if not announced:
        await desk.emit(events.ToolCalled(call_id=call.call_id, tool=call.tool, args=call.args))

    context = outcome.ToolContext(workspace=task.workspace.root, run_id=task.run_id)
    if (impossible := toolbox.check(call.tool, call.args, context)) is not None:
        return await _finish(call, desk, impossible)
    judgement = policy.judge(call.tool, call.args)
    if judgement.ruling is policy.Ruling.DENY:
        return await _finish(call, desk, _refused(f"not allowed: {judgement.reason}"))
    if judgement.ruling is policy.Ruling.ASK:
        question = questions.about(call, task.workspace.root, judgement.reason)
        stopped = await _ask(call, question, desk, headless=task.headless)
        if stopped is not None:
            return stopped

    await desk.emit(events.PhaseChanged("Executing tool", call.tool))
    await desk.flush()
    started = time.monotonic()
    output = await toolbox.execute(call.tool, call.args, context)
    return await _finish(call, desk, output, duration_ms=round((time.monotonic() - started) * 1000))


def _still_waits(call: events.ToolRequest, task: engine.Task) -> bool:
    return task.pending_approval is not None and task.pending_approval.call_id == call.call_id


async def _ask(call: events.ToolRequest, question: engine.Question, desk: engine.Desk, *, headless: bool) -> Settled | None:
    """`None` is a yes."""
    answer = await desk.ask(question)
    if answer.verdict is events.Verdict.APPROVE:
        return None
    about = f"{question.title}: {question.summary}"
    if answer.verdict is None:
        stop = engine.Result(events.Outcome.FAILED, f"the approval expired undecided ({about})")
        return await _finish(call, desk, _refused("not run: the approval expired before anybody decided"), stop=stop)
    comment = f": {answer.comment}" if answer.comment else ""
    # push, Headless Mode: with nobody there to steer, a denial ends the run whatever else it says.
    stops = headless or answer.verdict is events.Verdict.DENY_STOP
    stop_or_go_on = engine.Result(events.Outcome.DENIED, f"denied{comment} ({about})") if stops else None
    return await _finish(call, desk, _refused(f"denied{comment}"), stop=stop_or_go_on)


def _refused(message: str) -> outcome.ToolOutput:
    return outcome.failure(outcome.ErrorType.EDIT_GUARD_BLOCKED, message)


def _interrupted() -> outcome.ToolOutput:
    message = "interrupted by a restart; whether it took effect is unknown, so it was not run again"
    return outcome.failure(outcome.ErrorType.UNKNOWN, message)


async def _finish(
    call: events.ToolRequest,
    desk: engine.Desk,
    output: outcome.ToolOutput,
    *,
    duration_ms: int = 0,
    stop: engine.Result | None = None,
) -> Settled:
    await desk.emit(
        events.ToolFinished(
            call_id=call.call_id,
            tool=call.tool,
            duration_ms=duration_ms,
            text=output.text,
            is_error=output.is_error,
            error=output.error,
        )
    )
    message = engine.Message(role="tool", text=output.text, call_id=call.call_id, tool=call.tool, is_error=output.is_error)
    return Settled(message, stop)
