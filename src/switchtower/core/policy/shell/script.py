"""The parsed form of a shell command as plain values, and the builder and the source that the parser uses. The values carry no
judgement.
"""

from typing import Protocol

from msgspec import Struct


class ShellWord(Struct, frozen=True):
    """One word of a command, with quotes and backslashes removed."""

    text: str
    known: bool = True
    """False when it has an expansion that only the running shell can evaluate; `text` then has it as it was written."""
    wild: bool = False
    """It has wildcards, so names of files may replace it."""


class Redirect(Struct, frozen=True):
    operator: str
    target: ShellWord
    """A file; for `<<<` the text itself; for `<<` nothing."""

    @property
    def writes(self) -> bool:
        return ">" in self.operator

    @property
    def file(self) -> str | None:
        """None when it only joins or closes descriptors, or is text."""
        if self.operator.startswith("<<") or self.operator.endswith("&-"):
            return None
        if self.operator in (">&", "<&") and self.target.known and self.target.text.rstrip("-").strip("0123456789") == "":
            return None
        return self.target.text


class ShellCommand(Struct, frozen=True):
    """One simple command. Without words it is assignments or the redirections of a group."""

    words: tuple[ShellWord, ...]
    assignments: tuple[str, ...] = ()
    """The names of the variables that it sets."""
    values: tuple[ShellWord, ...] = ()
    """The values of those variables."""
    redirects: tuple[Redirect, ...] = ()
    inner: tuple[int, int] = (0, 0)
    """The commands of the script (from, to) that are in its own expansions and so feed it."""


class Script(Struct, frozen=True):
    """Everything that a text would run, in the order in which it is written."""

    text: str
    commands: tuple[ShellCommand, ...]
    pipelines: tuple[tuple[tuple[int, int], ...], ...] = ()
    """Each is a sequence of commands (from, to) that feed the next."""
    documents: tuple[str, ...] = ()
    """The bodies of here-documents."""
    doubts: tuple[str, ...] = ()
    """The reasons why it is uncertain what it would run. Sentences that continue after "it"."""
    unreadable: bool = False
    """Not even its structure is certain: there may be commands that are not listed."""


class WordSource(Protocol):
    text: str
    at: int

    def add_doubt(self, reason: str, *, unreadable: bool = False) -> None: ...

    def enter(self) -> bool:
        """Enters one more level; returns False, and ends the reading, when that is too deep."""
        ...

    def leave(self) -> None: ...

    def read_nested(self) -> None:
        """Reads commands up to and including the closing parenthesis."""
        ...

    def read_quoted_commands(self, text: str) -> None:
        """Reads the commands of a text between backquotes."""
        ...


_MOST_COMMANDS = 500
_MOST_WORDS = 4000
_MOST_WILD_WORDS = 32
_MOST_DOUBTS = 8


class ScriptBuilder:
    def __init__(self) -> None:
        self.commands: list[ShellCommand] = []
        self.pipelines: list[tuple[tuple[int, int], ...]] = []
        self.documents: list[str] = []
        self.words = 0
        self.wild_words = 0
        self._doubts: list[str] = []
        self._unreadable = False

    @property
    def has_too_many_commands(self) -> bool:
        return len(self.commands) >= _MOST_COMMANDS

    @property
    def has_too_many_words(self) -> bool:
        return self.words > _MOST_WORDS

    @property
    def has_too_many_wildcards(self) -> bool:
        return self.wild_words > _MOST_WILD_WORDS

    def add_doubt(self, reason: str, *, unreadable: bool = False) -> None:
        self._unreadable |= unreadable
        if len(self._doubts) < _MOST_DOUBTS and reason not in self._doubts:
            self._doubts.append(reason)

    def merge(self, other: "ScriptBuilder") -> None:
        """Adds the commands of another text behind those already here."""
        shift = len(self.commands)
        for command in other.commands:
            inner = _shift_range(command.inner, shift)
            self.commands.append(ShellCommand(command.words, command.assignments, command.values, command.redirects, inner))
        self.pipelines.extend(tuple(_shift_range(stage, shift) for stage in pipeline) for pipeline in other.pipelines)
        self.documents.extend(other.documents)
        self.words += other.words
        self.wild_words += other.wild_words
        for reason in other._doubts:
            self.add_doubt(reason)
        self._unreadable |= other._unreadable

    def build_script(self, text: str) -> Script:
        return Script(
            text,
            tuple(self.commands),
            tuple(self.pipelines),
            tuple(self.documents),
            tuple(self._doubts),
            self._unreadable,
        )


def _shift_range(commands: tuple[int, int], by: int) -> tuple[int, int]:
    first, last = commands
    return first + by, last + by
