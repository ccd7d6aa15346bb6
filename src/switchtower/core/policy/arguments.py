"""Finds the words of a command that a wildcard in a rule does not cover, because they change what the command is. Such a word
must be spelled out in the rule, or the command needs an approval. Reads no disk.

`git diff *` means to read differences; `git diff --output=x` writes a file. Other words that a wildcard does not cover are
paths that lead out of the workspace, protected files, and code.

A program accepts shortened options, gains new ones and has some that run, load, send or write what the caller chooses. So the
`tables` list the options and subcommands that are known to be harmless, by their full names, and nothing is concluded about
the rest. A program without a table has the few options that mean the same everywhere.

A table is text, one line for one or several subcommands: `log|show: oneline stat -pn:`. Words before the colon are the
subcommand, words behind it are long options, and words that start with a dash are single letters, with `:` behind those that
take a value.

| spelling | meaning |
|---|---|
| `: …` | options of the program itself, before any subcommand |
| `*: …` | options of every subcommand |
| `!push: …` | the rule has to spell out this subcommand |
| `install.: …` | the rule has to spell out this subcommand when operands follow it |
| `reporter=`, `-R=` | an option whose value is a plain name; a path there would be loaded |
| `-*` | every letter |
| `@dash` | long options have one dash, as in `go test -run x` |
| `@operand REGEX` | the rule has to spell out an operand, or a value in an option's word, that matches none of these |
| `@refuse REGEX` | or that contains one of these |
| `$name: …` | options that have a name in this table, used as `$name` |
| `@single` | the rule has to spell out all operands but the first |
| `@bundle` | the first word is letters, also without a dash, as in `tar xf x` |
"""

import re
from collections.abc import Iterator
from functools import cache

from switchtower.core.policy import paths, programs, shell, tables
from switchtower.core.policy.invocations import Words, WorkingDirectories

_GENERAL = (
    ": help version verbose quiet silent color colour colors no-color no-colour no-colors debug dry-run check list all json watch"
    " watchAll coverage bail fail-fast ci strict parallel jobs no-cache -hqvVj:"
)
_NO_OPTIONS = ":"
_NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
_NUMBER = re.compile(r"-[0-9]+[A-Za-z]?")


class OptionTable:
    """The words that a wildcard covers after a program or one of its subcommands."""

    def __init__(self) -> None:
        self.children: dict[str, OptionTable] = {}
        self.long: frozenset[str] = frozenset()
        self.letters: frozenset[str] = frozenset()
        self.valued: frozenset[str] = frozenset()
        """Letters that take the rest of their word, or the next one."""
        self.named: frozenset[str] = frozenset()
        """Options, by name or letter, whose value has to be a plain name."""
        self.takes_any_letter = False
        self.must_be_spelled_out = False
        self.stands_alone = False
        """With operands, a wildcard does not cover it."""
        self.has_one_dash = False
        self.takes_one_operand = False
        self.begins_with_letters = False
        self.operand: re.Pattern[str] | None = None
        self.refused: re.Pattern[str] | None = None

    def knows(self, option: str) -> bool:
        """Returns whether this word, which starts with a dash, is an option known to be harmless."""
        if self.has_one_dash and _NUMBER.fullmatch(option):
            return True
        if option.startswith("--") or self.has_one_dash:
            name, _, value = option.lstrip("-").partition("=")
            return name in self.long and self._takes(value)
        return self.knows_letters(option[1:])

    def knows_letters(self, cluster: str) -> bool:
        for at, letter in enumerate(cluster):
            if letter in self.valued:
                return self._takes(cluster[at + 1 :])
            if letter not in self.letters and not letter.isdigit() and not (self.takes_any_letter and letter.isalpha()):
                return False
        return True

    def find_name(self, option: str, next_word: str) -> str | None:
        """Returns the value of an option that takes a plain name; None when it takes none."""
        if option.startswith("--") or self.has_one_dash:
            name, equals, value = option.lstrip("-").partition("=")
            return (value if equals else next_word) if name in self.named else None
        for at, letter in enumerate(option[1:], start=1):
            if letter in self.named:
                return option[at + 1 :] or next_word
            if letter in self.valued:
                return None
        return None

    def takes_next_word(self, option: str) -> bool:
        """Returns whether the last letter of this known option takes the next word as its value."""
        return not option.startswith("--") and not self.has_one_dash and option[-1] in self.valued

    def _takes(self, value: str) -> bool:
        return not value or (
            (self.operand is None or self.operand.fullmatch(value) is not None)
            and (self.refused is None or self.refused.search(value) is None)
        )

    def covers(self, operand: str) -> bool:
        return self._takes(operand)


@cache
def load_option_table(name: str) -> OptionTable:
    text = tables.PROGRAM_TABLES.get(name)
    return _parse_table(_GENERAL if text is None else text)


def has_table(name: str) -> bool:
    return name in tables.PROGRAM_TABLES


def find_uncovered(name: str, words: tuple[shell.ShellWord, ...], start: int) -> Iterator[int]:
    """Yields the positions of the options, subcommands and operands that a wildcard does not cover."""
    root = node = load_option_table(name)
    at = verb = start + 1
    if root.begins_with_letters and at < len(words) and not words[at].text.startswith("-"):
        if not root.letters | root.valued >= set(words[at].text):
            yield at
        at += 1
    while at < len(words) and node.children:
        text = words[at].text
        if _is_option(text):
            if not node.knows(text):
                yield at
                # The next word may be its value, or the subcommand.
                at += 1
                if at < len(words):
                    yield at
            elif node.takes_next_word(text):
                at += 1
        elif text in node.children:
            node, verb = node.children[text], at
            if node.must_be_spelled_out:
                yield at
        else:
            yield at
            node = _parse_table(_NO_OPTIONS)
        at += 1
    operands = 0
    for place in range(at, len(words)):
        text = words[place].text
        if _is_option(text):
            value = node.find_name(text, words[place + 1].text if place + 1 < len(words) else "") if node.named else None
            if not node.knows(text) or (value is not None and not _NAME.fullmatch(value)):
                yield place
        elif text != "--":
            operands += 1
            if not node.covers(text) or (operands > 1 and node.takes_one_operand):
                yield place
            if node.stands_alone:
                yield verb


def _is_option(text: str) -> bool:
    return text.startswith("-") and text not in ("-", "--")


@cache
def _parse_table(table: str) -> OptionTable:
    root = OptionTable()
    named: dict[str, str] = {}
    operands: list[str] = []
    refused: list[str] = []
    rows: list[tuple[str, str]] = []
    for line in table.strip().replace("\n  ", " ").splitlines():
        match line.partition(" "):
            case "@dash", _, _:
                root.has_one_dash = True
            case "@single", _, _:
                root.takes_one_operand = True
            case "@bundle", _, _:
                root.begins_with_letters = True
            case "@operand", _, pattern:
                operands.append(pattern)
            case "@refuse", _, pattern:
                refused.append(pattern)
            case _:
                path, _, names = line.partition(": ") if ": " in line else (line.removesuffix(":"), "", "")
                if path.startswith("$"):
                    named[path] = _expand_names(names, named)
                else:
                    rows.append((path, _expand_names(names, named)))
    root.operand = re.compile("|".join(operands), re.DOTALL) if operands else None
    root.refused = re.compile("|".join(refused)) if refused else None
    common = " ".join(names for path, names in rows if path == "*")
    for path, names in rows:
        for spelling in path.split("|"):
            if path != "*":
                _add_options(_find_or_add_subcommand(root, spelling.strip()), f"{names} {common if path else ''}")
    return root


def _expand_names(names: str, named: dict[str, str]) -> str:
    return " ".join(named.get(name, name) for name in names.split())


def _find_or_add_subcommand(root: OptionTable, spelling: str) -> OptionTable:
    """Returns the node of a subcommand, and creates those above it."""
    node = root
    for verb in spelling.lstrip("!").removesuffix(".").split():
        if verb not in node.children:
            child = node.children[verb] = OptionTable()
            child.has_one_dash, child.operand, child.refused = root.has_one_dash, root.operand, root.refused
        node = node.children[verb]
    node.must_be_spelled_out = spelling.startswith("!")
    node.stands_alone = spelling.endswith(".")
    return node


def _add_options(node: OptionTable, names: str) -> None:
    long, letters, valued, named = set(node.long), set(node.letters), set(node.valued), set(node.named)
    for name in names.split():
        if name == "-*":
            node.takes_any_letter = True
        elif name.startswith("-"):
            for letter, sign in re.findall(r"([^:=-])([:=]?)", name):
                (valued if sign else letters).add(letter)
                if sign == "=":
                    named.add(letter)
        else:
            long.add(name.removesuffix("="))
            if name.endswith("="):
                named.add(name.removesuffix("="))
    node.long, node.letters, node.valued, node.named = map(frozenset, (long, letters, valued, named))


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
    """Returns the positions, counted from the first word of all, of the words that no wildcard covers."""
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
    """Returns whether a word, or a value in it, is a path out of the workspace."""
    if "/" not in word and "~" not in word and ".." not in word:
        return False
    return any(candidate not in _DEVICES and place.locate(candidate) is None for candidate in _extract_paths_out(word))


def extract_values(word: str) -> list[str]:
    """Returns the word itself, and the values behind a sign or an option in it: `--file=x`, `HEAD:x`, `@x`, `-Ix`."""
    text = word[:_LONGEST_PATH]
    if text.isalnum():
        return [text]
    return [value for value in dict.fromkeys((text, *_VALUE.split(text))) if value]


def _extract_paths_out(word: str) -> Iterator[str]:
    for candidate in extract_values(_URL.sub("", word[:_LONGEST_PATH])):
        if candidate.startswith(("/", "~")) or ".." in candidate.split("/"):
            yield "/" if candidate.startswith("~") else candidate


def _touches_protected(name: str, word: shell.ShellWord, place: WorkingDirectories) -> bool:
    """Files of git and files that steer the agent may be read, but not passed to a program that could write them."""
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
    """A shell wildcard at the start of a word may expand to a file whose name is an option."""
    return word.wild and word.text[:1] in "*?[" and name not in programs.READERS


def _find_program_words(name: str, words: Words, start: int) -> Iterator[int]:
    rest = range(start + 1, len(words))
    if name in programs.INTERPRETERS and not has_table(name):
        yield from _find_interpreter_options(words, start)
        return
    if name in ("sed", "gsed"):
        yield from (at for at in rest if _is_sed_code(words, at, start))
        return
    yield from find_uncovered(name, words, start)
    if name in ("make", "gmake", "ninja", "just", "rake", "task"):
        yield from (at for at in rest if _MAKE_VARIABLE.match(words[at].text))
    elif name in _TAKE_FILES_OF_ARGUMENTS:
        yield from (at for at in rest if words[at].text.startswith("@"))
    elif name in ("awk", "gawk", "mawk", "nawk"):
        yield from (at for at in rest if _HARMFUL_AWK.search(words[at].text))


def _find_interpreter_options(words: Words, start: int) -> Iterator[int]:
    """Options come before the script; the words after it are the script's own."""
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
