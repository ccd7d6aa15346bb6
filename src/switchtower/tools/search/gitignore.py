"""Compiles path patterns of git and ripgrep into regular expressions. It is close rather than complete."""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct


class InvalidGlob(ValueError):
    """The pattern is invalid; the text gives the reason."""


class IgnoreRule(Struct, frozen=True):
    """One line of a `.gitignore`. The last rule that matches decides."""

    matches: re.Pattern[str]
    ignores: bool
    folders_only: bool


def parse_gitignore(text: str) -> list[IgnoreRule]:
    """Parses a whole `.gitignore`. Invalid lines are skipped, as in git."""
    return list(_iterate_rules(text))


def is_ignored(path: str, rules_of_folder: Sequence[IgnoreRule], *, is_folder: bool) -> bool | None:
    """Returns the decision of one folder's rules about a path below it; None when no rule matches."""
    for rule in reversed(rules_of_folder):
        if (is_folder or not rule.folders_only) and rule.matches.fullmatch(path):
            return rule.ignores
    return None


def compile_glob(glob: str) -> re.Pattern[str]:
    """Compiles a glob that selects files, with `{a,b}`. Without a slash, it matches names at any depth."""
    return _compile(glob, braces=True)


def _iterate_rules(text: str) -> Iterator[IgnoreRule]:
    for raw in text.splitlines():
        line = raw.rstrip()
        if raw[len(line) :].startswith(" ") and line.endswith("\\"):
            line += " "
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        line = line[1:] if negated else line
        try:
            pattern = _compile(line.rstrip("/"), braces=False, anchored="/" in line.rstrip("/"))
        except (InvalidGlob, re.error):
            continue
        yield IgnoreRule(pattern, ignores=not negated, folders_only=line.endswith("/"))


def _compile(glob: str, *, braces: bool, anchored: bool | None = None) -> re.Pattern[str]:
    if anchored is None:
        anchored = "/" in glob
    body = _GlobTranslator(glob.removeprefix("/"), braces=braces).translate()
    try:
        return re.compile(body if anchored else f"(?:.*/)?{body}", re.DOTALL)
    except re.error as error:
        raise InvalidGlob(f"the glob `{glob}` cannot be read: {error}") from None


class _GlobTranslator:
    def __init__(self, glob: str, *, braces: bool) -> None:
        self._glob = glob
        self._braces = braces
        self._at = 0
        self._open_braces = 0

    def translate(self) -> str:
        pieces = list(self._iterate_pieces())
        if self._open_braces:
            raise InvalidGlob(f"the glob `{self._glob}` has a brace that is never closed")
        return "".join(pieces)

    def _iterate_pieces(self) -> Iterator[str]:
        glob = self._glob
        while self._at < len(glob):
            char = glob[self._at]
            self._at += 1
            if char == "*":
                yield self._translate_stars()
            elif char == "?":
                yield "[^/]"
            elif char == "[":
                yield self._translate_character_class()
            elif char == "\\" and self._at < len(glob):
                yield re.escape(glob[self._at])
                self._at += 1
            elif self._braces and char in "{,}":
                yield self._translate_brace(char)
            else:
                yield re.escape(char)

    def _translate_stars(self) -> str:
        start = self._at - 1
        while self._glob[self._at : self._at + 1] == "*":
            self._at += 1
        at_start = start == 0 or self._glob[start - 1] == "/"
        if self._at - start < 2 or not at_start:
            return "[^/]*"
        if self._at == len(self._glob):
            return ".+" if start else ".*"
        if self._glob[self._at] == "/":
            self._at += 1
            return "(?:.*/)?"
        return "[^/]*"

    def _translate_character_class(self) -> str:
        glob = self._glob
        negated = glob[self._at : self._at + 1] in ("!", "^")
        start = self._at + negated
        end = glob.find("]", start + 1)
        if end < 0:
            raise InvalidGlob(f"the glob `{glob}` has a bracket that is never closed")
        self._at = end + 1
        inside = "".join(f"\\{char}" if char in "\\[]^&~|" else char for char in glob[start:end])
        return f"(?!/)[{'^' if negated else ''}{inside}]"

    def _translate_brace(self, char: str) -> str:
        if char == "{":
            self._open_braces += 1
            return "(?:"
        if not self._open_braces:
            return re.escape(char)
        if char == "}":
            self._open_braces -= 1
            return ")"
        return "|"
