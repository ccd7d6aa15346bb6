"""A session that begins with the conversation of another, up to a message that can then be said in other words. Pure."""

from collections.abc import Sequence

import msgspec

from switchtower.core import codec, commands, conversation, engine, errors, events, journal
from switchtower.core.session import Session


class ConversationFork:
    """Reads the parent's entries, in order, until `reached`."""

    def __init__(self, before_seq: int | None = None) -> None:
        """`before_seq` is that of one of its user messages; None takes all that was said."""
        self._before_seq = before_seq
        self._conversation = conversation.Conversation()
        self.text: str | None = None
        """Of that message."""
        self.reached = False

    def add_entries(self, entries: Sequence[journal.Entry]) -> None:
        for entry in entries:
            if self._before_seq is not None and entry.seq >= self._before_seq:
                self._stop_at(entry)
                return
            self._conversation.add_entry(entry)

    def build_conversation(self) -> tuple[events.MessageImported, ...]:
        """Raises `InvalidCommand` when there is no such message."""
        if self._before_seq is not None and self.text is None:
            raise errors.InvalidCommand(f"at {self._before_seq} there is no message of a person", hint="fork before one of those")
        answered = engine.answered_call_ids(self._conversation.messages)
        told: list[events.MessageImported] = []
        for message in self._conversation.messages:
            if any(call.call_id not in answered for call in message.calls):
                break  # a call that nobody has answered yet: no model goes on from there
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
    """What a session goes on from it also goes on as: nobody's policy is loosened by a fork."""
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
