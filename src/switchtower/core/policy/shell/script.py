"""A shell command taken apart. Plain values; who reads them decides what they mean."""

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
