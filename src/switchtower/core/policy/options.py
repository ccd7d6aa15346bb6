"""The options and subcommands that a wildcard in a rule stands for. All others are asked about, or spelled out in the rule.

A program shortens its options, gains new ones and has some that run, load, send or write what the caller chooses. So the
`tables` list what is known to be harmless, by its full name, and nothing is concluded from the rest. A program without a
table has the few options that mean the same everywhere. Looks at no disk.

A table is text, one line for one or several subcommands: `log|show: oneline stat -pn:`. Words before the colon are the
subcommand, words behind it are long options, and what begins with a dash are single letters, `:` behind those that take a value.

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
| `@refuse REGEX` | or that has one of these in it |
| `$name: …` | options that have a name in this table, used as `$name` |
| `@single` | the rule has to spell out all operands but the first |
| `@bundle` | the first word is letters, also without a dash, as in `tar xf x` |
"""

import re
from collections.abc import Iterator
from functools import cache

from switchtower.core.policy import shell, tables

_GENERAL = (
    ": help version verbose quiet silent color colour colors no-color no-colour no-colors debug dry-run check list all json watch"
    " watchAll coverage bail fail-fast ci strict parallel jobs no-cache -hqvVj:"
)
_NO_OPTIONS = ":"
_NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
_NUMBER = re.compile(r"-[0-9]+[A-Za-z]?")


class OptionTable:
    """A program or one of its subcommands: what a wildcard stands for behind it."""

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
        """With operands it is more than a wildcard stands for."""
        self.has_one_dash = False
        self.takes_one_operand = False
        self.begins_with_letters = False
        self.operand: re.Pattern[str] | None = None
        self.refused: re.Pattern[str] | None = None

    def knows(self, option: str) -> bool:
        """Whether this word, which begins with a dash, is an option known to be harmless."""
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
        """What this option takes for a name; None when it takes none."""
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
        """Whether the last letter of this known option takes the next word for its value."""
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
    """The places of the options, subcommands and operands that a wildcard does not stand for."""
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
    """The node of a subcommand, with those above it."""
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
