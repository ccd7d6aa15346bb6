"""A run's task, read back from the journal: the conversation so far and what was still open. The same after a restart."""

import asyncio

import msgspec

from switchtower.core import codec, engine, events, journal
from switchtower.core.session import Run, Session
from switchtower.core.timeline import Timeline

PAGE = 1_000


async def task_of(journal_: journal.Journal, session: Session, run: Run, pending_approval: events.Approval | None) -> engine.Task:
    # What the session knows now is taken before the first wait: it may move on while the journal is read.
    task = _task(session, run, pending_approval)
    told = _Told()
    after_seq, head = 0, session.seq
    while after_seq < head:
        entries = await journal_.read(session.id, after_seq, PAGE)
        if not entries:
            break
        after_seq = entries[-1].seq
        await asyncio.sleep(0)  # a long history is read a page a turn, so that others come in between
        for entry in entries:
            if entry.kind in _TOLD_TO_ENGINES:
                told.add(codec.decode(entry.kind, entry.data))
    return _with_conversation(task, told)


class _Told:
    """The conversation as it grows event by event."""

    def __init__(self) -> None:
        self.messages: list[engine.Message] = []
        self.open_calls: dict[str, events.ToolRequest] = {}
        self.called: set[str] = set()
        self.flow: events.Flow | None = None
        self.steps: list[engine.FlowEvent] = []
        """Of a flow alone: an agent's are in its messages."""
        self._commands: dict[str, events.ShellStarted] = {}
        self._shells: list[engine.Message] = []
        """What people ran themselves since the last message; told with the next."""

    def add(self, event: events.AnyEvent) -> None:
        match event:
            case events.SessionStarted():
                self.flow = event.flow
            case events.ToolCalled() | events.ToolFinished() | events.ApprovalDecided() | events.ApprovalExpired():
                if self.flow is not None:
                    self.steps.append(event)
                else:
                    self._note_call(event)
            case events.RunStarted(purpose=events.Purpose.WORK):
                self.open_calls.clear()  # what an earlier run left open is not this run's to finish
                self.messages += self._shells  # between a call and its result they would be in the way
                self._shells = []
                self.messages.append(engine.Message(role="user", text=event.text, images=event.images))
            case events.RunStarted():
                self.open_calls.clear()
            case events.MessageDelivered():
                self.messages.append(engine.Message(role="user", text=event.text, images=event.images))
            case events.ConversationCleared():
                self.messages, self._shells = [], []
                self.open_calls.clear()
            case events.MessageImported():
                self.messages.append(engine.imported_message(event))
            case events.ShellStarted():
                self._commands[event.shell_id] = event
            case events.ShellFinished():
                started = self._commands.pop(event.shell_id, None)
                if started is not None and started.told:
                    self._shells.append(engine.shell_message(started, event))
            case events.PromptExpanded():
                self._replace_last_user_message(event.text)
            case events.MessageCompleted():
                self.messages.append(
                    engine.Message(
                        role="assistant", text=event.text, calls=event.calls, thinking=event.thinking, carry=event.carry
                    )
                )
                self.open_calls.update({call.call_id: call for call in event.calls})
            case events.ContextCompacted():
                self.messages = engine.compacted(self.messages, event.summary, event.kept)
            case _:
                pass

    def _note_call(self, event: engine.FlowEvent) -> None:
        if isinstance(event, events.ToolCalled):
            self.called.add(event.call_id)
        elif isinstance(event, events.ToolFinished):
            self.open_calls.pop(event.call_id, None)
            self.messages.append(
                engine.Message(role="tool", text=event.text, call_id=event.call_id, tool=event.tool, is_error=event.is_error)
            )

    def _replace_last_user_message(self, text: str) -> None:
        for index in range(len(self.messages) - 1, -1, -1):
            if self.messages[index].role == "user":
                self.messages[index] = engine.Message(role="user", text=text, images=self.messages[index].images)
                return


_TOLD_TO_ENGINES = frozenset(
    event.kind
    for event in (
        events.SessionStarted,
        events.RunStarted,
        events.MessageDelivered,
        events.PromptExpanded,
        events.ConversationCleared,
        events.MessageImported,
        events.ShellStarted,
        events.ShellFinished,
        events.MessageCompleted,
        events.ToolCalled,
        events.ToolFinished,
        events.ApprovalDecided,
        events.ApprovalExpired,
        events.ContextCompacted,
    )
)


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


def _with_conversation(task: engine.Task, told: _Told) -> engine.Task:
    return msgspec.structs.replace(
        task,
        messages=tuple(told.messages),
        open_calls=tuple(told.open_calls.values()),
        called=frozenset(told.called & told.open_calls.keys()),
        flow=told.flow,
        steps=tuple(told.steps),
    )
