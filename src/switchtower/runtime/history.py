"""A run's task, read back from the journal: the conversation so far and what was still open. The same after a restart."""

import asyncio

from switchtower.core import codec, engine, events, journal
from switchtower.core.session import Session

PAGE = 1_000
_TOLD_TO_ENGINES = frozenset(
    event.kind for event in (events.RunStarted, events.MessageCompleted, events.ToolCalled, events.ToolFinished)
)


async def task_of(
    journal_: journal.Journal, session: Session, run_id: str, pending_approval: events.Approval | None
) -> engine.Task:
    messages: list[engine.Message] = []
    open_calls: dict[str, events.ToolRequest] = {}
    called: set[str] = set()
    after_seq, head = 0, session.seq
    while after_seq < head:
        entries = await journal_.read(session.id, after_seq, PAGE)
        if not entries:
            break
        after_seq = entries[-1].seq
        await asyncio.sleep(0)  # a long history is read a page a turn, so that others come in between
        for entry in entries:
            if entry.kind not in _TOLD_TO_ENGINES:
                continue
            match codec.decode(entry.kind, entry.data):
                case events.RunStarted(text=text):
                    open_calls.clear()  # what an earlier run left open is not this run's to finish
                    messages.append(engine.Message(role="user", text=text))
                case events.MessageCompleted(text=text, calls=calls):
                    messages.append(engine.Message(role="assistant", text=text, calls=calls))
                    open_calls.update({call.call_id: call for call in calls})
                case events.ToolCalled(call_id=call_id):
                    called.add(call_id)
                case events.ToolFinished() as finished:
                    open_calls.pop(finished.call_id, None)
                    messages.append(
                        engine.Message(
                            role="tool",
                            text=finished.text,
                            call_id=finished.call_id,
                            tool=finished.tool,
                            is_error=finished.is_error,
                        )
                    )
    return engine.Task(
        session_id=session.id,
        run_id=run_id,
        workspace=session.workspace,
        provider=session.provider,
        model=session.model,
        sandbox=session.sandbox,
        headless=session.mode == "headless",
        messages=tuple(messages),
        open_calls=tuple(open_calls.values()),
        called=frozenset(called & open_calls.keys()),
        pending_approval=pending_approval,
    )
