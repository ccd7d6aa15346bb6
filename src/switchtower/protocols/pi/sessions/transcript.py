"""The current conversation of a session in pi's messages, and the part of it that a fork keeps. Pure.

It grows entry by entry, so that a long journal can be read page by page. Messages that the model no longer gets are not in it: a
cleared conversation starts empty, a compacted one starts with its summary.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from switchtower.core import codec, events
from switchtower.core.ports import engine, journal
from switchtower.protocols.pi import event_messages
from switchtower.protocols.pi.sessions import info
from switchtower.protocols.pi.stream_state import FIELDS, UNKNOWN_ASSISTANT, AssistantInfo


class UnknownEntry(Exception):
    """Invalid entry ID for forking"""

    def __str__(self) -> str:
        return type(self).__doc__ or ""


class TranscriptMessage(Struct, frozen=True):
    """One message, with the parts of it that are not for the model."""

    seq: int
    at_ms: int
    said: engine.Message
    """The message that the model gets."""
    shown: str
    """The text that users see: as it was typed, before files and templates were inserted."""
    cast: AssistantInfo = UNKNOWN_ASSISTANT
    usage: event_messages.Usage = event_messages.Usage()
    reported: events.UsageReported | None = None
    """The same usage as the core counts it."""
    cut_short: bool = False
    stopped: event_messages.StopReason | None = None
    """The reason why the message ended, if its calls do not show it."""
    error: str | None = None
    in_pi: event_messages.BashExecution | event_messages.CompactionSummary | None = None
    """The message in pi's form, if pi has a special role for it. The model gets a user message."""
    is_shown_only: bool = False
    """The model does not get it."""
    at_limit: bool = False
    """The provider stopped the message at its length limit."""

    def build_message(self) -> event_messages.Message:
        said = self.said
        if self.in_pi is not None:
            return self.in_pi
        match said.role:
            case "user":
                return event_messages.User(make_content(self.shown, said.images), self.at_ms)
            case "assistant":
                return event_messages.Assistant(
                    content=_make_assistant_content(said),
                    api=self.cast.api,
                    provider=self.cast.provider,
                    model=self.cast.model,
                    usage=self.usage,
                    stopReason=self.stopped or self._stop_reason,
                    errorMessage=UNSET if self.error is None else self.error,
                    timestamp=self.at_ms,
                )
            case _:
                content = make_content(said.text, said.images)
                return event_messages.ToolResult(said.call_id or "", said.tool or "", content, said.is_error, self.at_ms)

    @property
    def _stop_reason(self) -> event_messages.StopReason:
        if self.cut_short:
            return "aborted"
        return "length" if self.at_limit else "toolUse" if self.said.calls else "stop"

    def build_import(self) -> events.MessageImported:
        said = self.said
        return events.MessageImported(
            role=said.role,
            text="" if self.is_shown_only else said.text,
            at_ms=self.at_ms,
            thinking=said.thinking,
            calls=said.calls,
            call_id=said.call_id,
            tool=said.tool,
            is_error=said.is_error,
            images=said.images,
            usage=self.reported,
            origin=self._build_origin(),
        )

    def _build_origin(self) -> dict[str, Any] | None:
        if self.in_pi is not None:
            return {name: value for name, value in msgspec.to_builtins(self.in_pi).items() if name != "timestamp"}
        if self.said.role != "assistant":
            return None
        spoken = msgspec.to_builtins(self.build_message())
        return {name: spoken[name] for name in _SPOKEN if name in spoken}


_SPOKEN = ("api", "provider", "model", "usage", "stopReason", "errorMessage")


class PiTranscript:
    def __init__(self, assistant: AssistantInfo = UNKNOWN_ASSISTANT) -> None:
        """`assistant` is the one that speaks as far as the entries do not name it."""
        self.lines: list[TranscriptMessage] = []
        self.points: list[event_messages.ForkPoint] = []
        """All messages of the user, including those that a summary now replaces."""
        self.compaction: event_messages.CompactionResult | None = None
        """The last compaction."""
        self._assistant = assistant
        self._unpriced = False
        """The last message waits for its usage."""
        self._began_at_ms: int | None = None
        self._shells: dict[str, events.ShellStarted] = {}
        self._asides: list[TranscriptMessage] = []
        self._run_seq: int | None = None
        """The seq at which the active run started, when it is the agent's work."""
        self._failure: events.ErrorRaised | None = None
        self._thinking: list[bytes] = []
        """The stored pieces of thinking in the message that is being streamed."""

    def add(self, entry: journal.Entry) -> None:
        if entry.kind in FIELDS:
            # Only the first piece matters: it is the time at which the message started. The thinking of a message that is broken
            # off is nowhere else.
            self._began_at_ms = self._began_at_ms or entry.ts_ms
            if entry.kind == events.ThinkingDelta.kind:
                self._thinking.append(entry.data)
        elif entry.kind in _TOLD:
            self._add(entry.seq, entry.ts_ms, codec.decode(entry.kind, entry.data))

    def list_messages(self) -> list[event_messages.Message]:
        return [line.build_message() for line in [*self.lines, *self._asides]]

    def list_imported(self) -> tuple[events.MessageImported, ...]:
        """Returns the same conversation as imported messages, for the start of another session."""
        return tuple(line.build_import() for line in [*self.lines, *self._asides])

    @property
    def last_assistant_text(self) -> str | None:
        for line in reversed(self.lines):
            if line.said.role == "assistant" and (text := line.said.text.strip()):
                return text
        return None

    def _add(self, seq: int, ts_ms: int, event: events.AnyEvent) -> None:
        match event:
            case events.SessionStarted() | events.SessionConfigured():
                self._assistant = _update_assistant_info(self._assistant, event.provider, event.model)
            case events.ShellStarted():
                self._shells[event.shell_id] = event
            case events.ShellFinished():
                started = self._shells.pop(event.shell_id, None)
                if started is not None:
                    self._asides.append(_make_shell_message(seq, ts_ms, started, event))
            case events.RunStarted(purpose=events.Purpose.WORK) | events.MessageDelivered():
                if isinstance(event, events.RunStarted):
                    self.lines += self._asides
                    self._asides = []
                    self._run_seq, self._failure = seq, None
                self._add_user(seq, ts_ms, engine.Message(role="user", text=event.text, images=event.images))
            case events.PromptExpanded():
                self._expand(event.text)
            case events.MessageCompleted():
                thinking = event.thinking
                if event.cut_short and not thinking:
                    pieces = [codec.decode(events.ThinkingDelta.kind, data) for data in self._thinking]
                    thinking = "".join(piece.text for piece in pieces if isinstance(piece, events.ThinkingDelta))
                self._thinking = []
                said = engine.Message(role="assistant", text=event.text, thinking=thinking, calls=event.calls, carry=event.carry)
                began_at_ms, self._began_at_ms = self._began_at_ms or ts_ms, None
                at_limit = event.stop_reason == "length"
                line = TranscriptMessage(
                    seq, began_at_ms, said, event.text, self._assistant, cut_short=event.cut_short, at_limit=at_limit
                )
                self._append_message(line)
                self._unpriced = not event.cut_short
            case events.RunStarted():
                self._run_seq = None
            case events.ErrorRaised():
                self._failure = event
            case events.RetryScheduled():
                self._began_at_ms, self._thinking = None, []  # the streamed part does not count
            case events.RunCompleted():
                self._began_at_ms, self._thinking = None, []
                self._complete_run(seq, ts_ms, event)
            case events.UsageReported():
                self._add_usage(event)
            case events.ToolFinished():
                said = engine.Message(
                    role="tool", text=event.text, call_id=event.call_id, tool=event.tool, is_error=event.is_error
                )
                self._append_message(TranscriptMessage(seq, ts_ms, said, event.text))
            case events.MessageImported():
                self._add_imported(seq, event)
            case events.ConversationCleared():
                self.lines, self.points, self.compaction, self._asides = [], [], None, []
                self._unpriced = False  # the line that the price belongs to has been removed
            case events.ContextCompacted():
                self._compact(seq, ts_ms, event)
            case _:
                pass

    def _complete_run(self, seq: int, ts_ms: int, event: events.RunCompleted) -> None:
        """pi's clients learn from a message how a run ended: from the one that was broken off, or from an empty one."""
        run_seq, self._run_seq = self._run_seq, None
        if run_seq is None or event.outcome is events.Outcome.SUCCESS:
            return
        stopped = get_stop_reason(event.outcome, self._failure)
        error = self._failure.message if self._failure is not None else event.summary
        last = self.lines[-1] if self.lines else None
        if last is not None and last.cut_short and last.seq > run_seq:
            self.lines[-1] = msgspec.structs.replace(last, stopped=stopped, error=error)
        else:
            said = engine.Message(role="assistant", text="")
            self._append_message(
                TranscriptMessage(seq, ts_ms, said, "", self._assistant, stopped=stopped, error=error, is_shown_only=True)
            )

    def _append_message(self, line: TranscriptMessage) -> None:
        self.lines.append(line)
        self._unpriced = False

    def _add_user(self, seq: int, at_ms: int, said: engine.Message) -> None:
        self._append_message(TranscriptMessage(seq, at_ms, said, said.text))
        self.points.append(event_messages.ForkPoint(make_entry_id(seq), said.text))

    def _add_imported(self, seq: int, event: events.MessageImported) -> None:
        said = engine.convert_imported(event)
        origin = event.origin or {}
        if event.role == "user" and event.origin is None:
            self._add_user(seq, event.at_ms, said)
            return
        line = TranscriptMessage(seq, event.at_ms, said, said.text, self._assistant, reported=event.usage)
        if event.role == "user":
            in_pi = _read_origin(
                {**origin, "timestamp": event.at_ms}, event_messages.BashExecution | event_messages.CompactionSummary
            )
            line = msgspec.structs.replace(line, in_pi=in_pi, is_shown_only=not event.text)
        elif event.role == "assistant":
            line = msgspec.structs.replace(
                line,
                cast=AssistantInfo(
                    *(origin.get(name) or getattr(self._assistant, name) for name in ("provider", "model", "api"))
                ),
                usage=_read_origin(origin.get("usage"), event_messages.Usage) or line.usage,
                stopped=_read_origin(origin.get("stopReason"), event_messages.StopReason),
                error=origin.get("errorMessage"),
                is_shown_only=not (event.text or event.calls),
            )
        self._append_message(line)

    def _expand(self, text: str) -> None:
        for index in range(len(self.lines) - 1, -1, -1):
            line = self.lines[index]
            if line.said.role == "user":
                said = msgspec.structs.replace(line.said, text=text)
                self.lines[index] = msgspec.structs.replace(line, said=said)
                return

    def _add_usage(self, event: events.UsageReported) -> None:
        if not self._unpriced:
            return  # it belongs to a call without a visible message, such as a summary
        self._unpriced = False
        cast = _update_assistant_info(self._assistant, event.provider, event.model)
        self.lines[-1] = msgspec.structs.replace(self.lines[-1], cast=cast, usage=info.convert_usage(event), reported=event)

    def _compact(self, seq: int, ts_ms: int, event: events.ContextCompacted) -> None:
        told = [line for line in self.lines if not line.is_shown_only]
        summary, *kept = engine.compact_messages([line.said for line in told], event.summary, event.kept)
        first_kept = told[len(told) - len(kept)].seq if kept else seq
        kept_lines = [line for line in self.lines if line.seq >= first_kept]
        in_pi = event_messages.CompactionSummary(event.summary, event.tokens_before, ts_ms)
        self.lines = [TranscriptMessage(seq, ts_ms, summary, summary.text, in_pi=in_pi), *kept_lines]
        self.compaction = event_messages.CompactionResult(event.summary, make_entry_id(first_kept), event.tokens_before)
        self._unpriced = False


class TranscriptFork:
    """A conversation up to one of its user messages, which the user can then rewrite in the fork."""

    def __init__(self, message_id: str, assistant: AssistantInfo = UNKNOWN_ASSISTANT) -> None:
        self._transcript = PiTranscript(assistant)
        self._seq = _parse_entry_id(message_id)
        self.text: str | None = None
        """The text of that message, once it was reached."""

    def add(self, entry: journal.Entry) -> bool:
        """Returns whether the message was reached and nothing more is needed. Raises `UnknownEntry` when it is not a message."""
        if entry.seq < self._seq:
            self._transcript.add(entry)
            return False
        event = codec.decode(entry.kind, entry.data)
        match event:
            case events.RunStarted(purpose=events.Purpose.WORK) | events.MessageDelivered() | events.MessageImported(role="user"):
                if entry.seq == self._seq:
                    self.text = event.text
                    return True
            case _:
                pass
        raise UnknownEntry

    def list_imported(self) -> tuple[events.MessageImported, ...]:
        return self._transcript.list_imported()


def read_messages(entries: Iterable[journal.Entry], assistant: AssistantInfo = UNKNOWN_ASSISTANT) -> list[event_messages.Message]:
    return _read_transcript(entries, assistant).list_messages()


def read_imported(entries: Iterable[journal.Entry]) -> tuple[events.MessageImported, ...]:
    return _read_transcript(entries).list_imported()


def list_fork_points(entries: Iterable[journal.Entry]) -> list[event_messages.ForkPoint]:
    return _read_transcript(entries).points


def find_last_assistant_text(entries: Iterable[journal.Entry]) -> str | None:
    return _read_transcript(entries).last_assistant_text


def split_at_message(entries: Iterable[journal.Entry], message_id: str) -> tuple[tuple[events.MessageImported, ...], str]:
    """Returns everything before a user message, and its text. Raises `UnknownEntry`."""
    fork = TranscriptFork(message_id)
    for entry in entries:
        if fork.add(entry) and fork.text is not None:
            return fork.list_imported(), fork.text
    raise UnknownEntry


def extract_assistant_text(entry: journal.Entry) -> str:
    """Returns the assistant's text in this entry, trimmed; empty when the entry is not one of its messages."""
    if entry.kind not in (events.MessageCompleted.kind, events.MessageImported.kind):
        return ""
    match codec.decode(entry.kind, entry.data):
        case events.MessageCompleted(text=text) | events.MessageImported(text=text, role="assistant"):
            return text.strip()
        case _:
            return ""


def make_entry_id(seq: int) -> str:
    return f"e{seq}"


def make_content(text: str, images: tuple[events.Image, ...]) -> tuple[event_messages.Text | event_messages.Image, ...]:
    return (event_messages.Text(text), *(event_messages.Image(image.data, image.media_type) for image in images))


def _read_transcript(entries: Iterable[journal.Entry], assistant: AssistantInfo = UNKNOWN_ASSISTANT) -> PiTranscript:
    transcript = PiTranscript(assistant)
    for entry in entries:
        transcript.add(entry)
    return transcript


_STOPPED: dict[events.Outcome, event_messages.StopReason] = {
    events.Outcome.SUCCESS: "stop",
    events.Outcome.FAILED: "error",
    events.Outcome.CANCELLED: "aborted",
    events.Outcome.DENIED: "aborted",
}


def get_stop_reason(outcome: events.Outcome, failure: events.ErrorRaised | None) -> event_messages.StopReason:
    """Returns the reason why the last message of a run ended. A run that its daemon broke off has not failed by itself."""
    if outcome is events.Outcome.FAILED and failure is not None and failure.code == events.RUN_INTERRUPTED:
        return "aborted"
    return _STOPPED[outcome]


def _make_shell_message(seq: int, ts_ms: int, started: events.ShellStarted, finished: events.ShellFinished) -> TranscriptMessage:
    said = engine.convert_shell_result(started, finished)
    in_pi = event_messages.BashExecution(
        command=started.command,
        output=finished.text,
        exitCode=UNSET if finished.exit_code is None else finished.exit_code,
        cancelled=finished.cancelled,
        truncated=False,
        timestamp=ts_ms,
        excludeFromContext=UNSET if started.told else True,
    )
    return TranscriptMessage(seq, ts_ms, said, said.text, in_pi=in_pi, is_shown_only=not started.told)


def _read_origin(value: object, type_: Any) -> Any:
    """Returns None for a value that is not of this type: another program wrote it, or another release."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return None


def _make_assistant_content(
    said: engine.Message,
) -> tuple[event_messages.Text | event_messages.Thinking | event_messages.ToolCall, ...]:
    content: list[event_messages.Text | event_messages.Thinking | event_messages.ToolCall] = []
    if said.thinking:
        content.append(event_messages.Thinking(said.thinking))
    if said.text:
        content.append(event_messages.Text(said.text))
    return (*content, *(event_messages.ToolCall(call.call_id, call.tool, call.args) for call in said.calls))


def _update_assistant_info(assistant: AssistantInfo, provider: str | None, model: str | None) -> AssistantInfo:
    """Returns the assistant that speaks from now on. A provider named without a model uses its default: the current model if the
    provider is the same."""
    if provider is None or provider == assistant.provider:
        return AssistantInfo(assistant.provider, model or assistant.model, assistant.api)
    return AssistantInfo(provider, model or provider, assistant.api)


def _parse_entry_id(entry_id_: str) -> int:
    digits = entry_id_[1:]
    if not (entry_id_.startswith("e") and digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise UnknownEntry
    return int(digits)


_TOLD = frozenset(
    event.kind
    for event in (
        events.SessionStarted,
        events.SessionConfigured,
        events.RunStarted,
        events.ShellStarted,
        events.ShellFinished,
        events.ErrorRaised,
        events.MessageDelivered,
        events.PromptExpanded,
        events.MessageCompleted,
        events.UsageReported,
        events.RetryScheduled,
        events.RunCompleted,
        events.ToolFinished,
        events.MessageImported,
        events.ConversationCleared,
        events.ContextCompacted,
    )
)
