"""One simple command in the making: which of its words set variables, which belong to the shell's grammar, which are its own."""

import re

from switchtower.core.policy.shell.script import ShellCommand, Redirect, ShellWord
from switchtower.core.policy.shell.source import WordSource

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?\+?=", re.ASCII)
_DESCRIPTOR_NAME = re.compile(r"\{\w+\}")
_SKIPPED = frozenset({"if", "then", "elif", "else", "fi", "!", "{", "}", "while", "until", "do", "done"})
_LOOPS = frozenset({"while", "until"})
_DOUBTED = {
    "for": "has a loop",
    "select": "has a loop",
    "case": "chooses between commands",
    "esac": "chooses between commands",
    "function": "defines a function",
    "coproc": "starts a command beside it",
    "[[": "tests a condition that can run commands",
    "in": "has a loop",
}


class CommandBuilder:
    def __init__(self) -> None:
        self.redirects: list[Redirect] = []
        self._words: list[ShellWord] = []
        self._assignments: list[str] = []
        self._values: list[ShellWord] = []

    @property
    def is_empty(self) -> bool:
        return not (self._words or self._assignments or self.redirects)

    def add(self, word: ShellWord, raw: str, next_character: str, source: WordSource) -> None:
        """`raw` is the word as it is written: only without quotes can it set a variable or be grammar."""
        if self._words:
            self._words.append(word)
        elif raw in _SKIPPED and not self._assignments and not self.redirects:
            if raw in _LOOPS:
                source.add_doubt("has a loop")
        elif assignment := _ASSIGNMENT.match(raw):
            if assignment[2] or "(" in raw or next_character == "(":
                source.add_doubt("sets a variable in a way that can run commands", unreadable=True)
            self._assignments.append(assignment[1])
            self._values.append(ShellWord(word.text.partition("=")[2], word.known, word.wild))
        else:
            if raw in _DOUBTED:
                source.add_doubt(_DOUBTED[raw], unreadable=True)
            self._words.append(word)
        if next_character in ("<", ">") and _DESCRIPTOR_NAME.fullmatch(raw):
            source.add_doubt("lets the shell choose a descriptor")

    def build(self, inner: tuple[int, int]) -> ShellCommand:
        return ShellCommand(tuple(self._words), tuple(self._assignments), tuple(self._values), tuple(self.redirects), inner)
