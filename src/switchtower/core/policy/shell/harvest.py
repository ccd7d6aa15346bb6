"""What has been found in a text so far, and how much of it is too much to go on."""

from switchtower.core.policy.shell.script import ShellCommand, Script

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
