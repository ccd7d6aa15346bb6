"""Patterns for commands, as rules have them: words with wildcards, compared word by word.

Two ways to compare, because an error must fall on the safe side. A rule that allows wants its words exactly, from the first
to the last, and says which of them it spelled out. A rule that asks or denies finds its command under any path, in any
case, with options in between, whatever follows.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from switchtower.core.policy import globs, paths, shell

_OPERATORS = ";&|<>()$`\n"
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_SAFE_WORD = re.compile(r"[A-Za-z0-9_./:@%+,=^-]+")
_LONGEST_WORD = 4096


class Pattern(Struct, frozen=True):
    text: str
    words: tuple[globs.Glob, ...]
    rest: bool
    """It ends in `*`: any further words."""
    whole: bool
    """It has operators, assignments or redirections, so it stands for this very text and nothing else."""
    finished: bool = True
    """Its quotes end."""

    @property
    def any_command(self) -> bool:
        return self.rest and not self.words


def parse(text: str) -> Pattern:
    """Never fails: a quote that does not end goes to the end."""
    text = text.strip()
    pieces: list[str] = []
    words: list[globs.Glob] = []
    quote = ""
    begun = escaped = False
    whole = bool(_ASSIGNMENT.match(text))
    for char in text:
        if escaped:
            pieces.append(globs.escape(char) if not quote or char in '"\\' else globs.escape(f"\\{char}"))
            escaped = False
        elif char == "\\" and quote != "'":
            begun = escaped = True
        elif quote:
            if char == quote:
                quote = ""
            else:
                pieces.append(globs.escape(char))
        elif char in " \t":
            if begun:
                words.append(globs.parse("".join(pieces)))
            pieces, begun = [], False
        elif char in "'\"":
            quote, begun = char, True
        else:
            whole = whole or char in _OPERATORS
            pieces.append(char)
            begun = True
    if begun:
        words.append(globs.parse("".join(pieces)))
    rest = bool(words) and words[-1] == (None,)
    return Pattern(text, tuple(words[:-1] if rest else words), rest, whole, finished=not quote and not escaped)


of_rule = lru_cache(maxsize=512)(parse)
"""For patterns from a configuration, which come again and again; what a model writes is not worth remembering."""


def join(words: Iterable[str]) -> str:
    """A pattern for these words and no others, which is also a command of just these words."""
    return " ".join(_quoted(word) for word in words)


def covers(pattern: Pattern, words: Sequence[shell.Word]) -> frozenset[int] | None:
    """For rules that allow: the places of the words that the pattern spells out, or None when it does not match."""
    wanted = pattern.words
    if wanted and words and not globs.may_match(wanted[0], words[0].text):
        return None  # Most end here.
    if pattern.whole or len(words) < len(wanted) or (len(words) > len(wanted) and not pattern.rest):
        return None
    spelled_out = set()
    for place, glob in enumerate(wanted):
        word = words[place]
        if not word.known or len(word.text) > _LONGEST_WORD or not globs.matches(glob, word.text):
            return None
        if globs.is_literal(glob):
            spelled_out.add(place)
        elif ".." in word.text.split("/") or (place == 0 and not _stays_in_folder(glob, word.text)):
            return None
    return frozenset(spelled_out)


def hits(pattern: Pattern, words: Sequence[shell.Word]) -> bool:
    """For rules that ask or deny: errs towards yes."""
    if pattern.whole or not words:
        return False
    if not pattern.words:
        return True
    return is_program(pattern.words[0], words[0]) and hits_arguments(pattern.words[1:], words[1:])


def is_program(wanted: globs.Glob, word: shell.Word) -> bool:
    """Whether a command's first word may call this program: by any path, in any case, through a wildcard."""
    name = paths.fold(word.text)
    base = name.rsplit("/", 1)[-1]
    if word.wild:
        return globs.meets(_folded(wanted), globs.parse(base))
    return len(name) <= _LONGEST_WORD and (globs.matches(_folded(wanted), base) or globs.matches(_folded(wanted), name))


def hits_arguments(wanted: Sequence[globs.Glob], words: Sequence[shell.Word]) -> bool:
    at = 0
    for glob in wanted:
        behind_option = False
        while at < len(words):
            word = words[at]
            at += 1
            if not word.known or word.wild:
                return True
            if globs.matches(_folded(glob), paths.fold(word.text)):
                break
            # Options, and the values that may follow them, do not hide a command: `git -C x push` is a push.
            is_option = word.text.startswith("-")
            if not is_option and not behind_option:
                return False
            behind_option = is_option
        else:
            return False
    return True


@lru_cache(maxsize=512)
def _folded(glob: globs.Glob) -> globs.Glob:
    return tuple(paths.fold(token) if isinstance(token, str) else token for token in glob)


def _stays_in_folder(glob: globs.Glob, text: str) -> bool:
    """A wildcard in the name of a program does not reach into other folders."""
    return text.count("/") == glob.count("/")


def _quoted(text: str) -> str:
    if _SAFE_WORD.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"
