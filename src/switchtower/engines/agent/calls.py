"""The tool calls of one message: judged, asked about where needed, run, told. Reads run side by side, all else one by one.

The announcement is on disk before a tool acts. So after a crash a call that was announced may have acted, and is never
run again; only one that still waits for its approval certainly has not.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence

from switchtower.core import engine, errors, events, policy
from switchtower.engines.agent import questions
from switchtower.engines.agent.work import Stopped, Work
from switchtower.tools import outcome, previews
from switchtower.tools.files import links, scope

MOST_AT_ONCE = 8


async def settle_all(calls: Sequence[events.ToolRequest], work: Work, messages: list[engine.Message]) -> None:
    """Appends a result for each call, in their order. Raises `Stopped` when a decision ends the run."""
    for group in _groups(calls, work):
        if len(group) == 1:
            messages.append(await _settle(group[0], work))
        else:
            messages.extend(await _read_side_by_side(group, work))


def _groups(calls: Sequence[events.ToolRequest], work: Work) -> Iterator[list[events.ToolRequest]]:
    """Neighbouring reads that need nobody's leave, together; every other call alone."""
    reads: list[events.ToolRequest] = []
    for call in calls:
        if _is_free_read(call, work) and len(reads) < MOST_AT_ONCE:
            reads.append(call)
            continue
        if reads:
            yield reads
        reads = []
        if _is_free_read(call, work):
            reads.append(call)
        else:
            yield [call]
    if reads:
        yield reads


def _is_free_read(call: events.ToolRequest, work: Work) -> bool:
    return (
        call.problem is None
        and call.call_id not in work.task.called
        and work.toolbox.effect_of(call.tool) is outcome.Effect.READ
        and _judge(call, work).ruling is policy.Ruling.ALLOW
    )


async def _read_side_by_side(calls: list[events.ToolRequest], work: Work) -> list[engine.Message]:
    for call in calls:
        await work.desk.emit(events.ToolCalled(call_id=call.call_id, tool=call.tool, args=call.args))
    await work.desk.emit(events.PhaseChanged("Executing tools", ", ".join(call.tool for call in calls)))
    await work.desk.flush()
    finished = await asyncio.gather(*(_execute(call, work) for call in calls))
    # Told in the order of the calls: a client that knows no call ids pairs them up by that.
    return [
        await _finish(call, work, output, duration_ms=duration_ms)
        for call, (output, duration_ms) in zip(calls, finished, strict=True)
    ]


async def _settle(call: events.ToolRequest, work: Work) -> engine.Message:
    announced = call.call_id in work.task.called
    if announced and not _still_waits(call, work.task):
        return await _finish(call, work, _interrupted())
    if not announced:
        await work.desk.emit(events.ToolCalled(call_id=call.call_id, tool=call.tool, args=call.args))
    if call.problem is not None:
        return await _finish(call, work, outcome.failure(outcome.ErrorType.UNKNOWN, call.problem))
    if (impossible := work.toolbox.check(call.tool, call.args, _context(call, work))) is not None:
        return await _finish(call, work, impossible)

    judgement = await _judge_on_disk(call, work)
    if judgement.ruling is policy.Ruling.DENY:
        return await _finish(call, work, _refused(f"not allowed: {judgement.reason}"))
    if judgement.ruling is policy.Ruling.ASK and (refusal := await _asked(call, judgement, work)) is not None:
        return refusal

    if (folder := await asyncio.to_thread(scope.identity_of, work.task.workspace.root)) != work.folder:
        change = "removed" if folder is None else "replaced by another"
        return await _finish(call, work, _refused(f"not run: the workspace's folder was {change} since the run began"))
    effect = work.toolbox.effect_of(call.tool)
    if effect is not outcome.Effect.READ:
        await work.changes.before_change()
    await work.desk.emit(events.PhaseChanged("Executing tool", call.tool))
    await work.desk.flush()
    output, duration_ms = await _execute(call, work)
    return await _finish(call, work, output, duration_ms=duration_ms)


def _judge(call: events.ToolRequest, work: Work) -> policy.Judgement:
    return work.policy.judge(call.tool, call.args, work.toolbox.effect_of(call.tool), work.task.workspace.root)


async def _judge_on_disk(call: events.ToolRequest, work: Work) -> policy.Judgement:
    """The policy looks at words. Where they alone allow a call, the names in it are followed on the disk before it runs."""
    judgement = _judge(call, work)
    if judgement.ruling is not policy.Ruling.ALLOW or work.policy.profile == "yolo":
        return judgement
    question = await asyncio.to_thread(links.find_question, work.task.workspace.root, call.tool, call.args)
    if question is None:
        return judgement
    return policy.Judgement(policy.Ruling.ASK, question, destructive=judgement.destructive)


def _still_waits(call: events.ToolRequest, task: engine.Task) -> bool:
    return task.pending_approval is not None and task.pending_approval.call_id == call.call_id


async def _asked(call: events.ToolRequest, judgement: policy.Judgement, work: Work) -> engine.Message | None:
    """None is a yes."""
    preview = await previews.of(call.tool, call.args, _context(call, work))
    if "problem" in preview:
        return await _finish(call, work, _refused(f"not run: it cannot be shown: {preview['problem']}"))
    question = questions.about(call, work.task, judgement, work.toolbox.effect_of(call.tool), preview, work.folder)
    try:
        answer = await work.desk.ask(question)
    except errors.Unshowable as unshowable:
        return await _finish(call, work, _refused(f"not run: {unshowable.message}"))
    if answer.verdict is events.Verdict.APPROVE:
        if answer.rule is not None:
            work.policy = work.policy.granting(answer.rule)
        now = await previews.of(call.tool, call.args, _context(call, work))
        if questions.subject(call, work.task, now, work.folder) != question.subject:
            changed = "not run: the file was changed after this was approved; look at it again"
            return await _finish(call, work, outcome.failure(outcome.ErrorType.STALE_FILE, changed))
        return None
    about = f"{question.title}: {question.summary}"
    if answer.verdict is None:
        await _finish(call, work, _refused("not run: the approval expired before anybody decided"))
        raise Stopped(engine.Result(events.Outcome.FAILED, f"the approval expired undecided ({about})"))
    comment = f": {answer.comment}" if answer.comment else ""
    refusal = await _finish(call, work, _refused(f"denied{comment}"))
    # push, Headless Mode: with nobody there to steer, a denial ends the run whatever else it says.
    if work.task.headless or answer.verdict is events.Verdict.DENY_STOP:
        raise Stopped(engine.Result(events.Outcome.DENIED, f"denied{comment} ({about})"))
    return refusal


async def _execute(call: events.ToolRequest, work: Work) -> tuple[outcome.ToolOutput, int]:
    started = time.monotonic()
    output = await work.toolbox.execute(call.tool, call.args, _context(call, work))
    return output, round((time.monotonic() - started) * 1_000)


def _context(call: events.ToolRequest, work: Work) -> outcome.ToolContext:
    async def progress(text: str) -> None:
        await work.desk.emit(events.ToolProgressed(call.call_id, text))

    return outcome.ToolContext(
        workspace=work.task.workspace.root,
        run_id=work.task.run_id,
        session_id=work.task.session_id,
        call_id=call.call_id,
        sandbox=work.task.sandbox,
        progress=progress,
    )


def _refused(message: str) -> outcome.ToolOutput:
    return outcome.failure(outcome.ErrorType.EDIT_GUARD_BLOCKED, message)


def _interrupted() -> outcome.ToolOutput:
    message = "interrupted by a restart; whether it took effect is unknown, so it was not run again"
    return outcome.failure(outcome.ErrorType.UNKNOWN, message)


async def _finish(call: events.ToolRequest, work: Work, output: outcome.ToolOutput, *, duration_ms: int = 0) -> engine.Message:
    await work.desk.emit(
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
