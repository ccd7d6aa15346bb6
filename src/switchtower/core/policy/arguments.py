"""The words of a command that a wildcard in a rule does not stand for, because they change what the command is.

`git diff *` means to look at differences; `git diff --output=x` writes a file. Such a word has to be spelled out in the rule.
`options` knows them; here are paths that lead out of the workspace, files that are protected, and code.
"""

import re
from collections.abc import Iterator

from switchtower.core.policy import options, paths, programs, shell
from switchtower.core.policy.place import WorkingDirectories
from switchtower.core.policy.runs import Words

_TAKE_FILES_OF_ARGUMENTS = programs.split_names(
    "pytest gcc g++ cc clang clang++ c++ javac java rustc ld ar curl mypy pylint dotnet mvn tsc"
)
_MAKE_VARIABLE = re.compile(r"[A-Za-z_.][\w.-]*\s*(:{0,3}|[+?!])=")
_HARMLESS_SED = re.compile(r"\s*([0-9]+|\$)?(,\s*([0-9]+|\$))?\s*[pdq=](\s*;\s*([0-9]+|\$)?(,([0-9]+|\$))?[pdq=])*\s*")
_HARMLESS_SUBSTITUTION = re.compile(r"s([/|#,])(?:\\[^\n]|(?!\1)[^\n\\])*\1(?:\\[^\n]|(?!\1)[^\n\\])*\1[gpIi0-9]*")
_HARMFUL_AWK = re.compile(r"system|getline|printf?\b[^;}]*[|>]|[|@]|>\s*[\"$\w(]|ARGV|ENVIRON|PROCINFO|close|fflush|include|load")
_URL = re.compile(r"\b(?!file:)[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_VALUE = re.compile(r"[=:@,]|^-[A-Za-z0-9]")
_MAY_BE_PROTECTED = re.compile(r"[.~/]|[^ -~]|jenkinsfile", re.IGNORECASE)
_TAKE_LABELS = programs.split_names("bazel bazelisk buck2 pants plz")
_LABEL = re.compile(r"//(?!.*\.\.(/|$))[\w./-]*(:[\w.+-]+)?|//\.\.\.")
_ABOUT_ITSELF = frozenset({"--version", "--help", "-V"})
_LONGEST_PATH = 4096
_DEVICES = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero"})


def find_literal_words(words: Words, start: int, place: WorkingDirectories) -> frozenset[int]:
    """The places, counted from the first word of all, of the words that no wildcard covers."""
    name = programs.normalize_program_name(words[start].text)
    if name in programs.SPEAKERS:
        return frozenset(at for at in range(start + 1, len(words)) if name == "printf" and words[at].text.startswith("-v"))
    if name in programs.EDITORS or name in programs.DEBUGGERS:
        return frozenset(range(start + 1, len(words)))
    found = set(_find_program_words(name, words, start))
    for at in range(start + 1, len(words)):
        word = words[at]
        if name in _TAKE_LABELS and _LABEL.fullmatch(word.text):
            continue
        if _may_be_an_option(name, word) or is_outside_workspace(word.text, place) or _touches_protected(name, word, place):
            found.add(at)
    return frozenset(found)


def is_outside_workspace(word: str, place: WorkingDirectories) -> bool:
    """Whether a word, or a value in it, is a path out of the workspace."""
    if "/" not in word and "~" not in word and ".." not in word:
        return False
    return any(candidate not in _DEVICES and place.locate(candidate) is None for candidate in _extract_paths_out(word))


def extract_values(word: str) -> list[str]:
    """The word itself, and what stands behind a sign or an option in it: `--file=x`, `HEAD:x`, `@x`, `-Ix`."""
    text = word[:_LONGEST_PATH]
    if text.isalnum():
        return [text]
    return [value for value in dict.fromkeys((text, *_VALUE.split(text))) if value]


def _extract_paths_out(word: str) -> Iterator[str]:
    for candidate in extract_values(_URL.sub("", word[:_LONGEST_PATH])):
        if candidate.startswith(("/", "~")) or ".." in candidate.split("/"):
            yield "/" if candidate.startswith("~") else candidate


def _touches_protected(name: str, word: shell.ShellWord, place: WorkingDirectories) -> bool:
    """Files of git and files that steer the agent may be read, not handed to a program that could write them."""
    if name in programs.READERS or name == "git":
        return False
    if not _MAY_BE_PROTECTED.search(word.text) and place.bases == ((),):
        return False
    return any(
        paths.is_protected(parts) or (len(parts) > 1 and paths.normalize_name(parts[-1]) == "head")
        for candidate in extract_values(word.text)
        for parts in place.locate_possible(candidate)
    )


def _may_be_an_option(name: str, word: shell.ShellWord) -> bool:
    """A wildcard of the shell at the beginning of a word: a file could be called like an option."""
    return word.wild and word.text[:1] in "*?[" and name not in programs.READERS


def _find_program_words(name: str, words: Words, start: int) -> Iterator[int]:
    rest = range(start + 1, len(words))
    if name in programs.INTERPRETERS and not options.has_table(name):
        yield from _find_interpreter_options(words, start)
        return
    if name in ("sed", "gsed"):
        yield from (at for at in rest if _is_sed_code(words, at, start))
        return
    yield from options.find_uncovered(name, words, start)
    if name in ("make", "gmake", "ninja", "just", "rake", "task"):
        yield from (at for at in rest if _MAKE_VARIABLE.match(words[at].text))
    elif name in _TAKE_FILES_OF_ARGUMENTS:
        yield from (at for at in rest if words[at].text.startswith("@"))
    elif name in ("awk", "gawk", "mawk", "nawk"):
        yield from (at for at in rest if _HARMFUL_AWK.search(words[at].text))


def _find_interpreter_options(words: Words, start: int) -> Iterator[int]:
    """Options come before the script; what follows it are the script's own words."""
    if len(words) == start + 2 and words[start + 1].text in _ABOUT_ITSELF:
        return
    for at in range(start + 1, len(words)):
        if words[at].text.startswith("-"):
            yield at
            if at + 1 < len(words):
                yield at + 1
        elif not words[at - 1].text.startswith("-") or at == start + 1:
            return


def _is_sed_code(words: Words, at: int, start: int) -> bool:
    text = words[at].text
    if text.startswith("-"):
        return text not in ("-n", "-E", "-r", "-u", "--quiet", "--silent")
    first_operand = all(word.text.startswith("-") for word in words[start + 1 : at])
    return first_operand and not _HARMLESS_SED.fullmatch(text) and not _HARMLESS_SUBSTITUTION.fullmatch(text)
