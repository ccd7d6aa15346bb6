"""A shell command taken apart. Plain values; who reads them decides what they mean.

What a word is read from. The reader is one; a word reads on in it and hands it the commands that it comes across.

What has been found in a text so far, and how much of it is too much to go on."""

from typing import Protocol

from msgspec import Struct


class ShellWord(Struct, frozen=True):
    """One word of a command, quotes and backslashes worked off."""

    text: str
    known: bool = True
    """Without an expansion that only the running shell can work out; otherwise `text` has it as it was written."""
    wild: bool = False
    """It has wildcards, so names of files may take its place."""


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
    """What it sets them to."""
    redirects: tuple[Redirect, ...] = ()
    inner: tuple[int, int] = (0, 0)
    """The commands of the script (from, to) that stand in its own expansions and so feed it."""


class Script(Struct, frozen=True):
    """Everything that a text would run, in the order in which it is written."""

    text: str
    commands: tuple[ShellCommand, ...]
    pipelines: tuple[tuple[tuple[int, int], ...], ...] = ()
    """Each a row of commands (from, to) that feed the next."""
    documents: tuple[str, ...] = ()
    """The bodies of here-documents."""
    doubts: tuple[str, ...] = ()
    """Why it is not certain what it would run. Sentences that go on from "it"."""
    unreadable: bool = False
    """Not even its structure is certain: there may be commands that are not listed."""


class WordSource(Protocol):
    text: str
    at: int

    def add_doubt(self, reason: str, *, unreadable: bool = False) -> None: ...

    def enter(self) -> bool:
        """One level deeper; False, and all is read, when that is too deep."""
        ...

    def leave(self) -> None: ...

    def read_nested(self) -> None:
        """Reads commands up to the closing parenthesis, which is taken too."""
        ...

    def read_quoted_commands(self, text: str) -> None:
        """Reads the commands of a text that stood between backquotes."""
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
        """Takes over what another text holds, behind what is here."""
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
