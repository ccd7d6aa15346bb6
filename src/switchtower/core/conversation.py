"""The conversation of a session, read from its entries: an engine continues from it, and a fork starts with it, up to a
message that the user can then replace. Pure.
"""

from collections.abc import Sequence

import msgspec

from switchtower.core import codec, commands, errors, events
from switchtower.core.ports import engine, journal
from switchtower.core.session import Session


class Conversation:
    """The conversation as it grows event by event."""

    def __init__(self) -> None:
        self.messages: list[engine.Message] = []
        self.open_calls: dict[str, events.ToolRequest] = {}
        self.called: set[str] = set()
        self.flow: events.Flow | None = None
        self.steps: list[engine.FlowEvent] = []
        """The steps of a flow; an agent's steps are in its messages."""
        self._at_ms = 0
        self._commands: dict[str, events.ShellStarted] = {}
        self._shells: list[engine.Message] = []
        """Users' own commands since the last message; the model gets them with the next one."""

    def add_entry(self, entry: journal.Entry) -> None:
        if entry.kind in _MESSAGE_EVENTS:
            self.add(codec.decode(entry.kind, entry.data), entry.ts_ms)

    def add(self, event: events.AnyEvent, at_ms: int = 0) -> None:
        self._at_ms = at_ms
        match event:
            case events.SessionStarted():
                self.flow = event.flow
            case events.ToolCalled() | events.ToolFinished() | events.ApprovalDecided() | events.ApprovalExpired():
                if self.flow is not None:
                    self.steps.append(event)
                else:
                    self._note_call(event)
            case events.RunStarted(purpose=events.Purpose.WORK):
                self.open_calls.clear()  # calls that an earlier run left open are not this run's to finish
                self.messages += self._shells  # between a call and its result they would be in the way
                self._shells = []
                self.messages.append(engine.Message(role="user", text=event.text, images=event.images, at_ms=at_ms))
            case events.RunStarted():
                self.open_calls.clear()
            case events.MessageDelivered():
                self.messages.append(engine.Message(role="user", text=event.text, images=event.images, at_ms=at_ms))
            case events.ConversationCleared():
                self.messages, self._shells = [], []
                self.open_calls.clear()
            case events.MessageImported():
                if event.text or event.calls or event.images or event.role == "tool":
                    self.messages.append(engine.convert_imported(event))
            case events.ShellStarted():
                self._commands[event.shell_id] = event
            case events.ShellFinished():
                started = self._commands.pop(event.shell_id, None)
                if started is not None and started.told:
                    self._shells.append(engine.convert_shell_result(started, event))
            case events.PromptExpanded():
                self._replace_last_user_message(event.text)
            case events.MessageCompleted():
                self.messages.append(
                    engine.Message(
                        role="assistant",
                        text=event.text,
                        calls=event.calls,
                        thinking=event.thinking,
                        carry=event.carry,
                        at_ms=at_ms,
                    )
                )
                self.open_calls.update({call.call_id: call for call in event.calls})
            case events.ContextCompacted():
                self.messages = engine.compact_messages(self.messages, event.summary, event.kept)
            case _:
                pass

    def _note_call(self, event: engine.FlowEvent) -> None:
        if isinstance(event, events.ToolCalled):
            self.called.add(event.call_id)
        elif isinstance(event, events.ToolFinished):
            self.open_calls.pop(event.call_id, None)
            self.messages.append(
                engine.Message(
                    role="tool",
                    text=event.text,
                    call_id=event.call_id,
                    tool=event.tool,
                    is_error=event.is_error,
                    at_ms=self._at_ms,
                )
            )

    def _replace_last_user_message(self, text: str) -> None:
        for index in range(len(self.messages) - 1, -1, -1):
            if self.messages[index].role == "user":
                self.messages[index] = engine.Message(role="user", text=text, images=self.messages[index].images)
                return


_MESSAGE_EVENTS = frozenset(
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


class ConversationFork:
    """Reads the parent's entries, in order, until `reached`."""

    def __init__(self, before_seq: int | None = None) -> None:
        """`before_seq` is the seq of one of its user messages; None takes the whole conversation."""
        self._before_seq = before_seq
        self._conversation = Conversation()
        self.text: str | None = None
        """The text of that message."""
        self.reached = False

    def add_entries(self, entries: Sequence[journal.Entry]) -> None:
        for entry in entries:
            if self._before_seq is not None and entry.seq >= self._before_seq:
                self._stop_at(entry)
                return
            self._conversation.add_entry(entry)

    def build_conversation(self) -> tuple[events.MessageImported, ...]:
        """Raises `InvalidCommand` when that message does not exist."""
        if self._before_seq is not None and self.text is None:
            raise errors.InvalidCommand(f"at {self._before_seq} there is no message of a person", hint="fork before one of those")
        answered = engine.answered_call_ids(self._conversation.messages)
        told: list[events.MessageImported] = []
        for message in self._conversation.messages:
            if any(call.call_id not in answered for call in message.calls):
                break  # a call without a result: no model can continue from there
            told.append(_make_import(message))
        return tuple(told)

    def _stop_at(self, entry: journal.Entry) -> None:
        self.reached = True
        if entry.seq != self._before_seq:
            return
        match codec.decode(entry.kind, entry.data):
            case (
                events.RunStarted(text=text, purpose=events.Purpose.WORK)
                | events.MessageDelivered(text=text)
                | events.MessageImported(role="user", text=text)
            ):
                self.text = text
            case _:
                pass


def inherit_settings(command: commands.StartSession, parent: Session) -> commands.StartSession:
    """A fork inherits its parent's settings, so that it cannot loosen the policy."""
    return msgspec.structs.replace(
        command,
        provider=parent.provider,
        model=parent.model,
        sandbox=parent.sandbox,
        sandbox_is_settled=True,
        policy=parent.policy,
        thinking=parent.thinking,
        budget=parent.budget,
        parent=parent.id,
        resolved_preset=parent.preset,
    )


def _make_import(message: engine.Message) -> events.MessageImported:
    return events.MessageImported(
        role=message.role,
        text=message.text,
        at_ms=message.at_ms,
        thinking=message.thinking,
        calls=message.calls,
        call_id=message.call_id,
        tool=message.tool,
        is_error=message.is_error,
        images=message.images,
    )
