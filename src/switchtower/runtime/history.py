"""A run's task, read back from the journal: the conversation so far and what was still open. The same after a restart."""

import asyncio

import msgspec

from switchtower.core import conversation, engine, events, journal
from switchtower.core.session import Run, Session
from switchtower.core.timeline import Timeline

HISTORY_PAGE = 1_000


async def load_task(
    journal_: journal.Journal, session: Session, run: Run, pending_approval: events.Approval | None
) -> engine.Task:
    # What the session knows now is taken before the first wait: it may move on while the journal is read.
    task = _make_task(session, run, pending_approval)
    told = conversation.Conversation()
    after_seq, head = 0, session.seq
    while after_seq < head:
        entries = await journal_.read(session.id, after_seq, HISTORY_PAGE)
        if not entries:
            break
        after_seq = entries[-1].seq
        await asyncio.sleep(0)  # a long history is read a page a turn, so that others come in between
        for entry in entries:
            told.add_entry(entry)
    return _add_conversation(task, told)


def _make_task(session: Session, run: Run, pending_approval: events.Approval | None) -> engine.Task:
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


def _add_conversation(task: engine.Task, history: conversation.Conversation) -> engine.Task:
    return msgspec.structs.replace(
        task,
        messages=tuple(history.messages),
        open_calls=tuple(history.open_calls.values()),
        called=frozenset(history.called & history.open_calls.keys()),
        flow=history.flow,
        steps=tuple(history.steps),
    )
