"""The entry point of redaction: one `Redactor` per daemon, for texts, JSON-like data, events, streams and terminal screens. It
also applies the owner's own pattern.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from switchtower.core import events
from switchtower.core.redact import names, questions
from switchtower.core.redact.patterns import MARK
from switchtower.core.redact.scanner import SpanFinder
from switchtower.core.redact.stream import RedactionRules, StreamRedactor

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_ROW_START = re.compile(r"\x1b\[([0-9]{1,5});1H")

CellSpan = tuple[int, int]


def redact_screen(text: str, columns: int, find: Callable[[str], list[CellSpan]]) -> str:
    """Returns the screen's text with a mark where a secret starts, and without its other cells. Wrapped rows are searched as
    one text.
    """
    plain, places = _read_cells(text, columns)
    hidden = [(places[start], places[end - 1] + 1) for start, end in find(plain) if end > start]
    done, shown = 0, list[str]()
    for start, end in hidden:
        # Control sequences between its cells stay: they position the next row.
        kept = "".join(_SEQUENCE.findall(text[start:end]))
        shown += (text[done:start], MARK, kept)
        done = end
    return "".join((*shown, text[done:])) if hidden else text


def _read_cells(text: str, columns: int) -> tuple[str, list[int]]:
    """Returns the text of the cells, with a full row joined to the one below it, and the position of each cell in the text."""
    plain, places, width, row, at = list[str](), list[int](), 0, 0, 0
    while at < len(text):
        if text[at] == "\x1b" and (sequence := _SEQUENCE.match(text, at)) is not None:
            if sequence[0][-1:] != "m":
                below = _ROW_START.fullmatch(sequence[0])
                number = int(below[1]) if below is not None else 0
                if width < columns or number != row + 1:
                    plain.append("\n")
                    places.append(at)
                width, row = 0, number
            at = sequence.end()
            continue
        plain.append(text[at])
        places.append(at)
        width = 0 if text[at] in "\r\n" else width + 1
        at += 1
    return "".join(plain), places


LONGEST_LINE = 4_096
"""A longer line is released in parts; a match across two of them is not found."""


class PatternStreamRedactor(StreamRedactor):
    __slots__ = ("_line", "_line_released", "_pattern")

    def __init__(self, rules: RedactionRules, pattern: re.Pattern[str]) -> None:
        super().__init__(rules)
        self._pattern = pattern
        self._line = ""
        self._line_released = 0
        """The length of the part of the line that was released because no more text arrived for a while."""

    def feed(self, delta: str) -> str:
        self._line += super().feed(delta)
        end = self._line.rfind("\n") + 1
        if not end and len(self._line) >= LONGEST_LINE:
            end = len(self._line)
        return self._release(end)

    def settle(self) -> str:
        self._line += super().settle()
        if self._pattern.search(self._line, self._line.rfind("\n") + 1):
            return ""  # it may match more when more text arrives
        released, self._line_released = self._line[self._line_released :], len(self._line)
        return released

    def close(self) -> str:
        self._line += super().close()
        return self._release(len(self._line))

    def _release(self, end: int) -> str:
        line, shown = self._line[:end], self._line_released
        if not shown:
            released = redact_pattern(self._pattern, line)
        else:
            parts, done = list[str](), shown
            for start, stop in find_pattern_spans(self._pattern, line):
                if stop > done:
                    parts += (line[done:start], MARK)
                    done = stop
            released = "".join((*parts, line[done:]))
        self._line, self._line_released = self._line[end:], max(0, shown - end)
        return released


def redact_pattern(pattern: re.Pattern[str], text: str) -> str:
    """Redacts each line separately: `^`, `$` and matches of line ends must not depend on how many lines arrive together."""
    return "\n".join(pattern.sub(MARK, line) if line else line for line in text.split("\n"))


def find_pattern_spans(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Yields the spans where the pattern matches, line by line like `redact_pattern`."""
    start = 0
    for line in text.split("\n"):
        if line:
            yield from ((start + found.start(), start + found.end()) for found in pattern.finditer(line) if found[0])
        start += len(line) + 1


_S = TypeVar("_S", bound=msgspec.Struct)

LARGE = 32 * 1024
"""The number of characters of text in one event."""
MOST_SESSIONS = 1_000
"""Sessions whose hidden values are remembered; those that were not used for longest are forgotten."""
DEEPEST = 100
"""Values that are nested deeper are not inspected."""

FREE_TEXT: dict[type[msgspec.Struct], tuple[str, ...]] = {
    events.SessionStarted: ("workspace", "metadata", "preset", "program", "flow"),
    events.SessionResumed: ("last_assistant_text", "pending_approval"),
    events.SessionConfigured: ("title",),
    events.RunStarted: ("text", "acceptance", "rules"),
    events.MessageQueued: ("text",),
    events.MessageDelivered: ("text",),
    events.MessageWithdrawn: ("reason",),
    events.SessionLoaded: (),
    events.SessionUnloaded: (),
    events.SessionDeleted: (),
    events.VersionAdvanced: (),
    events.ConversationCleared: ("origin",),
    events.MessageImported: ("text", "thinking", "calls", "origin"),
    events.ShellStarted: (),
    events.ShellCancelRequested: (),
    events.ShellFinished: ("text",),
    events.TerminalTyped: ("text",),
    events.TerminalKeysTyped: (),
    events.TerminalResized: (),
    events.TerminalEchoChanged: (),
    events.PromptShown: (),
    events.PromptCleared: (),
    events.ScreenCaptured: ("text",),
    events.RemoteCallStarted: (),
    events.RemoteCallFinished: ("result", "error"),
    events.HostLost: (),
    events.HostReturned: (),
    events.HostEventReceived: ("data",),
    events.StepStopped: (),
    events.DialogOpened: ("dialog",),
    events.DialogAnswered: ("response",),
    events.DialogClosed: ("reason",),
    events.PromptExpanded: ("text", "sources"),
    events.PhaseChanged: ("phase", "detail"),
    events.ThinkingDelta: (),
    events.TextDelta: (),
    events.MessageCompleted: ("text", "thinking", "calls"),
    events.ToolCalled: (),
    events.ToolProgressed: (),
    events.ToolFinished: ("text", "error", "result", "outputs"),
    events.UsageReported: (),
    events.RetryScheduled: ("reason",),
    events.RetryEnded: ("reason",),
    events.CompactionStarted: (),
    events.ContextCompacted: ("summary",),
    events.CompactionFailed: ("reason",),
    events.CheckpointTaken: (),
    events.WorkspaceRestored: ("files", "skipped", "failed"),
    events.ApprovalRequested: ("approval",),
    events.ApprovalDecided: ("comment", "rule"),
    events.ApprovalExpired: (),
    events.ApprovalWithdrawn: ("reason",),
    events.WarningRaised: ("message", "detail"),
    events.ErrorRaised: ("message", "detail"),
    events.RunCancelRequested: ("reason",),
    events.RunCompleted: ("summary", "acceptance"),
    events.Relayed: ("extra",),
    events.Workspace: ("remote_url",),
    events.Preset: ("system",),
    events.Program: (),
    events.Flow: ("document", "inputs", "argv"),
    events.Criterion: ("description",),
    events.CriterionResult: ("output",),
    events.ToolError: ("message", "detail"),
    events.Approval: ("rule",),
    events.Dialog: ("title", "message", "options", "placeholder", "prefill", "questions"),
    events.Rule: ("tool",),
    events.ToolRequest: ("problem",),
}
"""The fields that may contain text of a user, a model or a program. The others are ids, enums and our own names.

A delta has none: a secret may be cut between two of them, so their text passes through a `StreamRedactor` before they are
made.
"""

DECIDED: dict[type[msgspec.Struct], tuple[str, ...]] = {
    events.Approval: ("title", "summary", "details"),
    events.Criterion: ("check",),
    events.RemoteCallStarted: ("args",),
    events.Program: ("argv", "command"),
    events.PromptShown: ("prompt",),
    events.Rule: ("path", "command"),
    events.ShellStarted: ("command",),
    events.ToolCalled: ("args",),
    events.ToolRequest: ("args",),
}
"""The fields with what a user decides about, and with what ran: they are redacted like an approval, so that no code is hidden."""

_PROSE = frozenset({"title", "summary", "prompt"})
"""Those of these fields that no shell reads."""


class Redactor:
    """Hides secrets: what looks like one, what is named like one, and the values that the daemon was configured with."""

    def __init__(self, known: Iterable[str] = (), *, extra: str | None = None) -> None:
        """`extra` is the owner's own pattern."""
        self._rules = RedactionRules()
        self._extra = re.compile(extra) if extra else None
        self._sessions: dict[str, Redactor] = {}
        for value in known:
            self.add_secret(value)

    def for_session(self, session_id: str) -> "Redactor":
        """Returns the redactor of one session: a value that it has hidden once, it hides wherever the value occurs again."""
        redactor = self._sessions.pop(session_id, None)
        if redactor is None:
            redactor = Redactor()
            redactor._rules, redactor._extra = self._rules.for_session(), self._extra
        self._sessions[session_id] = redactor
        if len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return redactor

    def add_secret(self, value: str) -> None:
        """Adds a value to hide, from now on and in open streams too. Values under 8 characters are ignored."""
        self._rules.learn(value)

    def open_stream(self) -> StreamRedactor:
        """Returns a redactor for one text that arrives in pieces; its whole output equals `redact_text` of the whole text."""
        return StreamRedactor(self._rules) if self._extra is None else PatternStreamRedactor(self._rules, self._extra)

    def redact_text(self, text: str) -> str:
        if self._extra is None and not self._rules.is_suspicious(text):
            return text
        stream = self.open_stream()
        redacted = stream.feed(text) + stream.close()
        return text if redacted == text else redacted

    def redact_question(self, text: str, *, is_command: bool = True) -> str:
        """Redacts the text of an approval: a mark replaces one literal and gives its length; see `questions`. `is_command`
        means that a shell may read the text.
        """
        return questions.mask_literals(text, self._find_spans(text), is_command=is_command)

    def _find_spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the spans of the secrets."""
        if self._extra is None and not self._rules.is_suspicious(text):
            return []
        finder = SpanFinder()
        hidden = [*self._rules.literals.find_spans(text), *finder.find(text)]
        for secret in finder.found:
            self._rules.add_found(secret)
        if self._extra is not None:
            hidden += find_pattern_spans(self._extra, text)
        return sorted(hidden)

    def redact_question_value(self, value: Any, *, is_command: bool = True) -> Any:
        """Returns JSON-like data with every string redacted as in an approval; the same object when nothing changed."""
        return self._redact_value(value, DEEPEST, question=_Question(is_command))

    def redact_value(self, value: Any) -> Any:
        """Returns JSON-like data with every string redacted, entirely when its key names a secret; the same object when
        nothing changed.
        """
        return self._redact_value(value, DEEPEST)

    def redact_event(self, event: events.AnyEvent) -> events.AnyEvent:
        """Returns the event with its free text redacted; the same object when nothing changed. The text of deltas is not
        changed.
        """
        if isinstance(event, events.ScreenCaptured):
            text = redact_screen(event.text, event.cols, self._find_spans)
            event = event if text == event.text else msgspec.structs.replace(event, text=text)
        redacted = self._redact_struct(event)
        if event.relayed is None:
            return redacted
        relayed = self._redact_struct(event.relayed)
        return redacted if relayed is event.relayed else msgspec.structs.replace(redacted, relayed=relayed)

    def is_large(self, event: events.AnyEvent) -> bool:
        """Returns whether redacting the event takes so long that it must not block the event loop."""
        fields = (getattr(event, name) for name in (*FREE_TEXT[type(event)], *DECIDED.get(type(event), ())))
        return sum(map(_measure_size, fields)) > LARGE

    def _redact_struct(self, struct: _S) -> _S:
        changes = {}
        for name in FREE_TEXT[type(struct)]:
            before = getattr(struct, name)
            after = self._redact_value(before, DEEPEST)
            if after is not before:
                changes[name] = after
        for name in DECIDED.get(type(struct), ()):
            before = getattr(struct, name)
            after = self.redact_question_value(before, is_command=name not in _PROSE)
            if after is not before:
                changes[name] = after
        return msgspec.structs.replace(struct, **changes) if changes else struct

    def _redact_value(
        self, value: Any, depth: int, kind: names.SecretKind | None = None, *, question: "_Question | None" = None
    ) -> Any:
        """`kind` is the kind of secret that the value's key promises; it also holds for the items of a list."""
        match value:
            case str():
                named = kind is not None and _is_named_secret(kind, value)
                if named and kind is not names.SecretKind.KEY:
                    self._rules.add_found(value)
                if question is not None:
                    return (
                        questions.make_mark(value)
                        if named and questions.is_literal(value)
                        else self.redact_question(value, is_command=question.is_command)
                    )
                return MARK if named else self.redact_text(value)
            case dict() | list() | tuple() if depth == 0:
                return MARK  # too deep to inspect; such an approval is refused before it gets here
            case dict():
                redacted = {
                    self._redact_value(key, depth - 1, question=question): self._redact_value(
                        held,
                        depth - 1,
                        names.classify_name(key) if isinstance(key, str) else None,
                        question=_find_subquestion(question, key),
                    )
                    for key, held in value.items()
                }
                unchanged = len(redacted) == len(value) and all(map(_is_same, value.items(), redacted.items()))
                return value if unchanged else redacted
            case list() | tuple():
                items = [self._redact_value(item, depth - 1, kind, question=question) for item in value]
                if all(after is before for after, before in zip(items, value, strict=True)):
                    return value
                return items if isinstance(value, list) else tuple(items)
            case msgspec.Struct():
                return self._redact_struct(value)
            case _:
                return value


def _measure_size(value: Any, depth: int = 8) -> int:
    """Returns roughly the number of characters of its texts."""
    match value:
        case str():
            return len(value)
        case dict() if depth:
            return sum(_measure_size(held, depth - 1) for held in value.values())
        case list() | tuple() if depth:
            return sum(_measure_size(held, depth - 1) for held in value)
        case msgspec.Struct() if depth:
            return sum(_measure_size(getattr(value, name), depth - 1) for name in value.__struct_fields__)
        case _:
            return 0


class _Question(msgspec.Struct, frozen=True):
    """Marks a value as part of an approval, and whether a shell may read it."""

    is_command: bool


def _find_subquestion(question: _Question | None, key: Any) -> _Question | None:
    if question is not None and question.is_command and questions.is_text_key(key):
        return _Question(is_command=False)
    return question


def _is_named_secret(kind: names.SecretKind, value: str) -> bool:
    """Under a name that is certain, every value that is not empty is a secret."""
    if kind is names.SecretKind.KEY:
        return names.is_secret(kind, names.AssignedValue(value, quoted=True))
    return value != "" and not value.startswith(MARK[:-1])


def _is_same(before: tuple[Any, Any], after: tuple[Any, Any]) -> bool:
    return before[0] is after[0] and before[1] is after[1]
