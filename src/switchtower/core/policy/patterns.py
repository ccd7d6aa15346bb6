"""Patterns for commands in rules: words with wildcards, compared word by word.

There are two comparisons, because an error must be on the safe side. A rule that allows must match its words exactly, from the
first to the last, and the result names the words that it spelled out. A rule that asks or denies finds its command under any
path, in any case, with options in between, and with any words after it.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from switchtower.core.policy import paths, shell

_OPERATORS = ";&|<>()$`\n"
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_SAFE_WORD = re.compile(r"[A-Za-z0-9_./:@%+,=^-]+")
_LONGEST_WORD = 4096


class CommandPattern(Struct, frozen=True):
    text: str
    words: tuple[paths.Glob, ...]
    rest: bool
    """It ends in `*`, which matches any further words."""
    whole: bool
    """It has operators, assignments or redirections, so it matches this very text and nothing else."""
    finished: bool = True
    """All of its quotes are closed."""

    @property
    def is_any_command(self) -> bool:
        return self.rest and not self.words


def parse_command_pattern(text: str) -> CommandPattern:
    """Never fails: a quote without an end extends to the end of the text."""
    text = text.strip()
    pieces: list[str] = []
    words: list[paths.Glob] = []
    quote = ""
    begun = escaped = False
    whole = bool(_ASSIGNMENT.match(text))
    for char in text:
        if escaped:
            pieces.append(paths.escape_glob(char) if not quote or char in '"\\' else paths.escape_glob(f"\\{char}"))
            escaped = False
        elif char == "\\" and quote != "'":
            begun = escaped = True
        elif quote:
            if char == quote:
                quote = ""
            else:
                pieces.append(paths.escape_glob(char))
        elif char in " \t":
            if begun:
                words.append(paths.parse_glob("".join(pieces)))
            pieces, begun = [], False
        elif char in "'\"":
            quote, begun = char, True
        else:
            whole = whole or char in _OPERATORS
            pieces.append(char)
            begun = True
    if begun:
        words.append(paths.parse_glob("".join(pieces)))
    rest = bool(words) and words[-1] == (None,)
    return CommandPattern(text, tuple(words[:-1] if rest else words), rest, whole, finished=not quote and not escaped)


parse_rule_pattern = lru_cache(maxsize=512)(parse_command_pattern)
"""The cache is for patterns of a configuration, which repeat; text that a model writes is not worth caching."""


def quote_words(words: Iterable[str]) -> str:
    """Returns a pattern for these words and no others, which is also a command of just these words."""
    return " ".join(_quote(word) for word in words)


def match_command_exactly(pattern: CommandPattern, words: Sequence[shell.ShellWord]) -> frozenset[int] | None:
    """Rules that allow: returns the positions of the words that the pattern spells out, or None when it does not match."""
    wanted = pattern.words
    if wanted and words and not paths.can_match(wanted[0], words[0].text):
        return None  # most end here
    if pattern.whole or len(words) < len(wanted) or (len(words) > len(wanted) and not pattern.rest):
        return None
    spelled_out = set()
    for place, glob in enumerate(wanted):
        word = words[place]
        if not word.known or len(word.text) > _LONGEST_WORD or not paths.match_glob(glob, word.text):
            return None
        if paths.is_literal(glob):
            spelled_out.add(place)
        elif ".." in word.text.split("/") or (place == 0 and not _stays_in_folder(glob, word.text)):
            return None
    return frozenset(spelled_out)


def match_command_loosely(pattern: CommandPattern, words: Sequence[shell.ShellWord]) -> bool:
    """Rules that ask or deny: returns whether the pattern may match; errs towards yes."""
    if pattern.whole or not words:
        return False
    if not pattern.words:
        return True
    return is_program(pattern.words[0], words[0]) and match_arguments(pattern.words[1:], words[1:])


def is_program(wanted: paths.Glob, word: shell.ShellWord) -> bool:
    """Returns whether a command's first word may call this program: by any path, in any case, through a wildcard."""
    name = paths.normalize_name(word.text)
    base = name.rsplit("/", 1)[-1]
    if word.wild:
        return paths.can_overlap(_fold_glob(wanted), paths.parse_glob(base))
    return len(name) <= _LONGEST_WORD and (
        paths.match_glob(_fold_glob(wanted), base) or paths.match_glob(_fold_glob(wanted), name)
    )


def match_arguments(wanted: Sequence[paths.Glob], words: Sequence[shell.ShellWord]) -> bool:
    at = 0
    for glob in wanted:
        behind_option = False
        while at < len(words):
            word = words[at]
            at += 1
            if not word.known or word.wild:
                return True
            if paths.match_glob(_fold_glob(glob), paths.normalize_name(word.text)):
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
def _fold_glob(glob: paths.Glob) -> paths.Glob:
    return tuple(paths.normalize_name(token) if isinstance(token, str) else token for token in glob)


def _stays_in_folder(glob: paths.Glob, text: str) -> bool:
    """A wildcard in the name of a program does not reach into other folders."""
    return text.count("/") == glob.count("/")


def _quote(text: str) -> str:
    if _SAFE_WORD.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"
