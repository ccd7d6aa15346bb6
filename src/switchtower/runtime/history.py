"""A run's task, read back from the journal: the conversation so far and what was still open. The same after a restart."""

import asyncio

import msgspec

from switchtower.core import conversation, engine, events, journal
from switchtower.core.session import Run, Session
from switchtower.core.timeline import Timeline

PAGE = 1_000


async def task_of(journal_: journal.Journal, session: Session, run: Run, pending_approval: events.Approval | None) -> engine.Task:
    # What the session knows now is taken before the first wait: it may move on while the journal is read.
    task = _task(session, run, pending_approval)
    told = conversation.Conversation()
    after_seq, head = 0, session.seq
    while after_seq < head:
        entries = await journal_.read(session.id, after_seq, PAGE)
        if not entries:
            break
        after_seq = entries[-1].seq
        await asyncio.sleep(0)  # a long history is read a page a turn, so that others come in between
        for entry in entries:
            told.read(entry)
    return _with_conversation(task, told)


def _task(session: Session, run: Run, pending_approval: events.Approval | None) -> engine.Task:
    return engine.Task(
        session_id=session.id,
        run_id=run.id,
        workspace=session.workspace,
        provider=session.provider,
        model=session.model,
        sandbox=session.sandbox,
        headless=run.headless,
        messages=(),
        pending_approval=pending_approval,
        purpose=run.purpose,
        instructions=run.instructions,
        force=run.force,
        policy=session.policy,
        rules=tuple(session.rules),
        run_rules=run.rules,
        thinking=session.thinking,
        budget=session.budget,
        started_at_ms=run.started_at_ms,
        turns_taken=run.usage.calls,
        tokens_used=run.usage.tokens,
        cost=run.usage.cost,
        context_tokens=session.context_tokens,
        checkpoint=run.checkpoint,
        timeline=Timeline(tuple(session.done), tuple(session.undone)),
        auto_compact=session.auto_compact,
        auto_retry=session.auto_retry,
        preset=session.preset,
    )


def _with_conversation(task: engine.Task, told: conversation.Conversation) -> engine.Task:
    return msgspec.structs.replace(
        task,
        messages=tuple(told.messages),
        open_calls=tuple(told.open_calls.values()),
        called=frozenset(told.called & told.open_calls.keys()),
        flow=told.flow,
        steps=tuple(told.steps),
    )
