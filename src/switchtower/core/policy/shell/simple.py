"""One simple command in the making: which of its words set variables, which belong to the shell's grammar, which are its own."""

import re

from switchtower.core.policy.shell.script import Command, Redirect, Word
from switchtower.core.policy.shell.source import Source

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


class Unfinished:
    def __init__(self) -> None:
        self.redirects: list[Redirect] = []
        self._words: list[Word] = []
        self._assignments: list[str] = []
        self._values: list[Word] = []

    @property
    def is_empty(self) -> bool:
        return not (self._words or self._assignments or self.redirects)

    def add(self, word: Word, raw: str, next_character: str, source: Source) -> None:
        """`raw` is the word as it is written: only without quotes can it set a variable or be grammar."""
        if self._words:
            self._words.append(word)
        elif raw in _SKIPPED and not self._assignments and not self.redirects:
            if raw in _LOOPS:
                source.doubt("has a loop")
        elif assignment := _ASSIGNMENT.match(raw):
            if assignment[2] or "(" in raw or next_character == "(":
                source.doubt("sets a variable in a way that can run commands", unreadable=True)
            self._assignments.append(assignment[1])
            self._values.append(Word(word.text.partition("=")[2], word.known, word.wild))
        else:
            if raw in _DOUBTED:
                source.doubt(_DOUBTED[raw], unreadable=True)
            self._words.append(word)
        if next_character in ("<", ">") and _DESCRIPTOR_NAME.fullmatch(raw):
            source.doubt("lets the shell choose a descriptor")

    def finished(self, inner: tuple[int, int]) -> Command:
        return Command(tuple(self._words), tuple(self._assignments), tuple(self._values), tuple(self.redirects), inner)
