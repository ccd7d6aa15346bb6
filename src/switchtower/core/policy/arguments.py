"""The words of a command that a wildcard in a rule does not stand for, because they change what the command is.

`git diff *` means to look at differences; `git diff --output=x` writes a file. Such a word has to be spelled out in the rule.
The same goes for paths that lead out of the workspace and for code.
"""

import re
from collections.abc import Iterator

from switchtower.core.policy import paths, programs, shell
from switchtower.core.policy.place import Place
from switchtower.core.policy.runs import Words

# Long options that make a program write, run or load something, whichever program it is: by a piece of the name,
_STEMS = programs.names(
    "exec command cmd output shell config plugin preload loader upload write hook editor pager delete browser inplace"
)
# by a whole word of it,
_WORDS = programs.names("eval script action prefix program require chdir cwd rsh extension unsafe rcfile")
# or by the whole name.
_NAMES = programs.names(
    "basetemp compress-program confcutdir directory env-file ext-diff file files-from filter force git-dir hostname-bin import"
    " in-place include-dir init-file input junit-xml junitxml log-file makefile module node-options override-ini pastebin pdbcls"
    " post-data post-file pre receive-pack remote remove root rootdir server source tool use-compress-program work-tree workdir"
)
_STEM = re.compile("|".join(sorted(_STEMS)))

_LETTERS = {
    "awk": "fiEelLo",
    "cargo": "CZ",
    "curl": "oOKTdFDcJxEQ",
    "date": "sf",
    "docker": "Hvfc",
    "file": "Cf",
    "gawk": "fiEelLo",
    "gcc": "oBx",
    "git": "oOxCc",
    "go": "oC",
    "hexdump": "f",
    "jq": "fL",
    "make": "fCIEoW",
    "npm": "C",
    "pnpm": "C",
    "pytest": "pco",
    "sort": "oT",
    "tar": "IFPCTX",
    "tree": "o",
    "unzip": "do",
    "wget": "OoiPea",
    "yarn": "C",
    "zip": "TmO",
}
"""Single-letter options that do so."""
_SINGLE_DASH_WORDS = frozenset({"find", "fd", "go", "java", "terraform", "openssl", "ffmpeg", "gcc", "clang", "xmllint"})
_TAKE_FILES_OF_ARGUMENTS = programs.names("pytest gcc g++ cc clang clang++ javac java rustc ld ar curl")
_FIND_ACTIONS = programs.names("-delete -exec -execdir -ok -okdir -fprint -fprint0 -fprintf -fls -files0-from")
_MAKE_VARIABLE = re.compile(r"[A-Za-z_.][\w.-]*\s*(:{0,3}|[+?!])=")
_HARMLESS_SED = re.compile(r"\s*([0-9]+|\$)?(,\s*([0-9]+|\$))?\s*[pdq=](\s*;\s*([0-9]+|\$)?(,([0-9]+|\$))?[pdq=])*\s*")
_HARMLESS_SUBSTITUTION = re.compile(r"s([/|#,])(?:\\[^\n]|(?!\1)[^\n\\])*\1(?:\\[^\n]|(?!\1)[^\n\\])*\1[gpIi0-9]*")
_HARMFUL_AWK = re.compile(r"system|getline|printf?\b[^;}]*[|>]|[|@]|>\s*[\"$\w(]|ARGV|ENVIRON|PROCINFO|close|fflush|include|load")
_GIT_READS = programs.names(
    "status diff log show blame annotate ls-files ls-tree rev-parse rev-list describe shortlog cat-file name-rev merge-base"
    " whatchanged diff-tree diff-index diff-files for-each-ref show-ref count-objects check-ignore version help grep var"
)
_GIT_FETCHES = frozenset({"clone", "fetch", "pull", "ls-remote"})
_URL = re.compile(r"\b(?!file:)[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_VALUE = re.compile(r"[=:@,]|^-[A-Za-z0-9]")
_LONGEST_PATH = 4096
_DEVICES = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero"})


def must_be_spelled_out(words: Words, start: int, place: Place) -> frozenset[int]:
    """The places, counted from the first word of all, of the words that no wildcard covers."""
    name = programs.base_name(words[start].text)
    if name in programs.SPEAKERS:
        return frozenset(at for at in range(start + 1, len(words)) if name == "printf" and words[at].text.startswith("-v"))
    if name in programs.EDITORS:
        return frozenset(range(start + 1, len(words)))
    found = set(_by_program(name, words, start))
    for at in range(start + 1, len(words)):
        word = words[at]
        if _reaches(name, word) or leads_out(word.text, place) or _touches_protected(name, word, place):
            found.add(at)
    return frozenset(found)


def leads_out(word: str, place: Place) -> bool:
    """Whether a word, or a value in it, is a path out of the workspace."""
    if "/" not in word and "~" not in word and ".." not in word:
        return False
    return any(candidate not in _DEVICES and place.locate(candidate) is None for candidate in _paths_in(word))


def values_in(word: str) -> Iterator[str]:
    """The word itself, and what stands behind a sign or an option in it: `--file=x`, `HEAD:x`, `@x`, `-Ix`."""
    text = word[:_LONGEST_PATH]
    return (value for value in dict.fromkeys((text, *_VALUE.split(text))) if value)


def _paths_in(word: str) -> Iterator[str]:
    for candidate in values_in(_URL.sub("", word[:_LONGEST_PATH])):
        if candidate.startswith(("/", "~")) or ".." in candidate.split("/"):
            yield "/" if candidate.startswith("~") else candidate


def _touches_protected(name: str, word: shell.Word, place: Place) -> bool:
    """Files of git and files that steer the agent may be read, not handed to a program that could write them."""
    if name in programs.READERS or name == "git":
        return False
    if word.text.isascii() and "." not in word.text and "~" not in word.text and place.bases == ((),):
        return False  # All of them have a dot in their name, or a tilde in their short one.
    return any(
        paths.belongs_to_git(parts) or paths.steers_the_agent(parts)
        for candidate in values_in(word.text)
        for parts in place.possible(candidate)
    )


def _reaches(name: str, word: shell.Word) -> bool:
    text = word.text
    if word.wild and text[:1] in "*?[" and name not in programs.READERS:
        return True  # A file could be called like an option.
    if not text.startswith("-") or text == "--":
        return False
    option = text.lstrip("-").partition("=")[0]
    if text.startswith("--") or (name in _SINGLE_DASH_WORDS and len(option) > 1):
        return _option_reaches(option)
    return any(letter in text[1:] for letter in _LETTERS.get(name, ""))


def _option_reaches(option: str) -> bool:
    if _STEM.search(option) or not _WORDS.isdisjoint(option.split("-")):
        return True
    # Most programs take an option shortened.
    return len(option) > 1 and any(known.startswith(option) for known in _STEMS | _WORDS | _NAMES)


def _by_program(name: str, words: Words, start: int) -> Iterator[int]:
    rest = range(start + 1, len(words))
    if name in programs.INTERPRETERS:
        yield from _interpreter_options(words, start)
    elif name in ("find", "fd", "fdfind"):
        yield from (at for at in rest if words[at].text in _FIND_ACTIONS)
    elif name in ("make", "gmake", "ninja", "just", "rake"):
        yield from (at for at in rest if _MAKE_VARIABLE.match(words[at].text))
    elif name in ("sed", "gsed"):
        yield from (at for at in rest if _is_sed_code(words, at, start))
    elif name in _TAKE_FILES_OF_ARGUMENTS:
        yield from (at for at in rest if words[at].text.startswith("@"))
    elif name in ("awk", "gawk", "mawk", "nawk"):
        yield from (at for at in rest if _HARMFUL_AWK.search(words[at].text))
    elif name == "git":
        yield from _git_words(words, start)


def _interpreter_options(words: Words, start: int) -> Iterator[int]:
    """Options come before the script; what follows it are the script's own words."""
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


def _git_words(words: Words, start: int) -> Iterator[int]:
    for at in range(start + 1, len(words)):
        text = words[at].text
        if text.startswith("-"):
            if text != "--no-pager":
                yield at
                if at + 1 < len(words):
                    yield at + 1
            continue
        if text not in _GIT_READS:
            yield at
        later = range(at + 1, len(words))
        yield from (behind for behind in later if "::" in words[behind].text)
        if text in _GIT_FETCHES:
            yield from (behind for behind in later if words[behind].text.startswith("-u"))
        return
