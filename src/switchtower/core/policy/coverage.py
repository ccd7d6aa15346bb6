"""Decides whether the rules that allow cover a command: all of it, each part, and nothing that a rule should have spelled out
and did not. Counts only what is certain.

A command and the commands that it wraps are layers, and each has to be allowed: `timeout 9 npm test` by a rule for `npm test`,
since a plain `timeout` changes nothing; `uv run pytest -q` by a rule that spells out `pytest`. A wrapper that adds words, such
as `xargs`, has no layers.
"""

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from switchtower.core.policy import arguments, command_analysis, invocations, patterns, programs, shell
from switchtower.core.policy.invocations import Words, WorkingDirectories

_SHELL_STRING = re.compile(r"-[eux]*c")
_DURATION = re.compile(r"[0-9.]+[smhd]?")
_NUMBER = re.compile(r"-?[0-9]+")
_STDBUF = re.compile(r"(-[ioe]|--(input|output|error)=)[0-9LKMB]+")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
HARMLESS_VARIABLES = programs.split_names(
    "CI NODE_ENV FORCE_COLOR NO_COLOR CLICOLOR CLICOLOR_FORCE TERM TZ LANG LC_ALL LC_CTYPE COLUMNS LINES PYTHONUNBUFFERED"
    " PYTHONDONTWRITEBYTECODE PYTHONUTF8 RUST_BACKTRACE RUST_LOG VERBOSE DEBUG"
)
_HARMLESS_VALUE = re.compile(r"[\w.,:@/+-]*", re.ASCII)
"""`make` expands the values of variables, so a value must not contain anything that could be expanded."""


def is_harmless_value(value: shell.ShellWord) -> bool:
    return value.known and _HARMLESS_VALUE.fullmatch(value.text) is not None


class CommandLayer(Struct, frozen=True):
    start: int
    """The position of its first word."""
    spelled_out: frozenset[int]
    """The positions of words that a rule must spell out."""
    text: str | None = None
    """The text that a shell runs, when that is all it does: the layer is allowed when this text is."""


def split_layers(words: Words, place: WorkingDirectories) -> list[CommandLayer] | None:
    """Returns the layers of a command, outermost first; None when some part of it cannot be determined from its words."""
    layers: list[CommandLayer] = []
    start = 0
    while start < len(words):
        name = words[start].text
        if (unwrapped := _TRANSPARENT.get(name, _skip_opaque)(words, start + 1)) is not None:
            start = unwrapped
            continue
        base = programs.normalize_program_name(name)
        if base in programs.SHELL_STATE:
            return None
        if (string := _find_shell_string(words, start)) is not None:
            return [*layers, CommandLayer(start, frozenset({start + 1, string}), words[string].text)]
        if (module := invocations.find_module_argument(words, start)) is not None:
            layers.append(CommandLayer(start, frozenset(range(start + 1, module))))
            return [*layers, CommandLayer(module, arguments.find_literal_words(words, module, place))]
        if not invocations.is_wrapper(words, start):
            return [*layers, CommandLayer(start, arguments.find_literal_words(words, start, place))]
        wrapper = programs.WRAPPERS[base]
        if wrapper.feeds:
            return None
        inner, own = _skip_options(wrapper, words, start)
        layers.append(CommandLayer(start, own))
        start = inner
    return layers or None


def _skip_options(wrapper: programs.Wrapper, words: Words, start: int) -> tuple[int, frozenset[int]]:
    """Returns the position of the wrapped command, and those of the wrapper's own words: an unknown option may or may not take
    the next word.
    """
    at = start + 1
    own = set()
    if wrapper.verbs:
        while at < len(words) and words[at].text not in wrapper.verbs:
            own.add(at)
            at += 1
        own.add(at)
        at += 1
    operands = wrapper.operands
    while at < len(words):
        option = words[at].text
        if option.startswith("-"):
            own.add(at)
            if option not in wrapper.flags and "=" not in option and option != "--":
                own.add(at + 1)
                at += 1
        elif operands:
            own.add(at)
            operands -= 1
        else:
            break
        at += 1
    return at, frozenset(place for place in own if place < len(words))


def _find_shell_string(words: Words, start: int) -> int | None:
    """Returns the position of the text in `sh -c TEXT`, when the command has nothing else."""
    if words[start].text not in ("sh", "bash", "dash") or len(words) - start != 3:
        return None
    return start + 2 if _SHELL_STRING.fullmatch(words[start + 1].text) else None


def _skip_opaque(words: Words, at: int) -> int | None:
    return None


def _skip_timeout(words: Words, at: int) -> int | None:
    while at < len(words) and words[at].text.startswith("-"):
        if words[at].text in ("--preserve-status", "--foreground", "-v"):
            at += 1
        elif words[at].text in ("-k", "-s") and at + 1 < len(words):
            at += 2
        else:
            return None
    return at + 1 if at + 1 < len(words) and _DURATION.fullmatch(words[at].text) else None


def _skip_nice(words: Words, at: int) -> int | None:
    if at + 2 < len(words) and words[at].text == "-n" and _NUMBER.fullmatch(words[at + 1].text):
        return at + 2
    return _skip_plain(words, at)


def _skip_plain(words: Words, at: int) -> int | None:
    return at if at < len(words) and not words[at].text.startswith("-") else None


def _skip_time(words: Words, at: int) -> int | None:
    return _skip_plain(words, at + 1 if at < len(words) and words[at].text == "-p" else at)


def _skip_stdbuf(words: Words, at: int) -> int | None:
    while at < len(words) and _STDBUF.fullmatch(words[at].text):
        at += 1
    return _skip_plain(words, at)


def _skip_env(words: Words, at: int) -> int | None:
    while at < len(words) and (assignment := _ASSIGNMENT.match(words[at].text)):
        if assignment[1] not in HARMLESS_VARIABLES or not _HARMLESS_VALUE.fullmatch(words[at].text[assignment.end() :]):
            return None
        at += 1
    return _skip_plain(words, at)


_TRANSPARENT: dict[str, Callable[[Words, int], int | None]] = {
    "timeout": _skip_timeout,
    "nice": _skip_nice,
    "time": _skip_time,
    "nohup": _skip_plain,
    "command": _skip_plain,
    "stdbuf": _skip_stdbuf,
    "env": _skip_env,
}


_SET_OPTIONS = re.compile(r"[-+][eux]+|-[eux]*o|pipefail|errexit|nounset")
_GLUE = frozenset({"pwd", "true", "false", ":", "echo"})
_TESTS = frozenset({"test", "["})
_COMPOUND = re.compile(r"\b(if|then|while|until|for|case|select)\b")
_LONGEST_PATTERN = 2000


class AllowedPatterns(Struct, frozen=True):
    """The patterns of rules that allow."""

    configured: Sequence[patterns.CommandPattern] = ()
    granted: Sequence[patterns.CommandPattern] = ()
    """Patterns made by "always": they hold for the folder and the standard input that the command had when it was approved."""
    is_fed: bool = False
    """The whole script has another standard input than the command's own."""

    def select_for(self, place: WorkingDirectories, *, is_fed: bool) -> Sequence[patterns.CommandPattern]:
        """Returns the patterns that hold for a command in this folder."""
        if is_fed or place.has_moved:
            return self.configured
        return (*self.configured, *self.granted)

    def with_fed_input(self) -> "AllowedPatterns":
        return AllowedPatterns(self.configured, is_fed=True)


def is_covered(
    seen: command_analysis.CommandAnalysis,
    configured: Sequence[patterns.CommandPattern],
    granted: Sequence[patterns.CommandPattern] = (),
) -> bool:
    """Rules that allow: returns whether each command in it is covered by one of these patterns, or does nothing by itself."""
    if seen.doubts or not seen.script.commands:
        return False
    if any(pattern.is_any_command or (pattern.whole and pattern.text == seen.text) for pattern in (*configured, *granted)):
        return True
    return _is_script_covered(seen.script, seen.place, AllowedPatterns(configured, granted)) is True


def make_exact_pattern(seen: command_analysis.CommandAnalysis) -> str | None:
    """Returns a pattern for exactly this command; None when that is impossible, or when it would be too long to read."""
    if len(seen.text) > _LONGEST_PATTERN:
        return None
    listed = seen.script.commands
    if len(listed) == 1 and listed[0].words and not listed[0].assignments and not listed[0].redirects:
        exact = patterns.quote_words(word.text for word in listed[0].words)
        return (
            exact
            if _is_script_covered(seen.script, seen.place, AllowedPatterns([patterns.parse_command_pattern(exact)]))
            else None
        )
    return seen.text if patterns.parse_command_pattern(seen.text).whole else None


def _is_script_covered(script: shell.Script, place: WorkingDirectories, allowed: AllowedPatterns) -> bool | None:
    """None: all of it does nothing by itself, so no rule allows it and none needs to."""
    if script.doubts or not script.commands:
        return False
    used: bool | None = None
    fed = _find_fed_commands(script)
    for number, command in enumerate(script.commands):
        if any(name not in HARMLESS_VARIABLES for name in command.assignments):
            return False
        if any(not is_harmless_value(value) for value in command.values):
            return False
        if any(
            not redirect.writes and redirect.file and arguments.is_outside_workspace(redirect.file, place)
            for redirect in command.redirects
        ):
            return False
        if command.words and _is_command_covered(command.words, place, allowed, is_fed=allowed.is_fed or number in fed):
            used = True
        elif command.words and not _is_glue(command.words, place):
            return False
    return used


def _find_fed_commands(script: shell.Script) -> frozenset[int]:
    """Returns the commands whose standard input is not the script's own: behind a pipe, or with a redirection."""
    found: set[int] = set()
    for stages in script.pipelines:
        for first, last in stages[1:]:
            # The reader does not record where an `if` ends, so every command behind its start may be fed.
            found.update(range(first, len(script.commands) if _COMPOUND.search(script.text) else last))
    for number, command in enumerate(script.commands):
        if any("<" in redirect.operator for redirect in command.redirects):
            # Without words it is the redirection of a group, and the reader does not record which commands are in the group.
            found.update((number,) if command.words else range(len(script.commands)))
    return frozenset(found)


def _is_command_covered(words: Words, place: WorkingDirectories, allowed: AllowedPatterns, *, is_fed: bool) -> bool:
    wrapped = split_layers(words, place)
    if wrapped is None or (is_fed and any(_runs_its_input(words[layer.start]) for layer in wrapped)):
        return False
    matches: list[tuple[int, frozenset[int]]] = []
    """The position where a rule starts to match, and the positions that it spells out."""
    usable = allowed.select_for(place, is_fed=is_fed)
    for start in dict.fromkeys((0, *(layer.start for layer in wrapped))):
        for pattern in usable:
            spelled_out = patterns.match_command_exactly(pattern, words[start:])
            if spelled_out is not None:
                matches.append((start, frozenset(start + at for at in spelled_out)))
    inside = allowed.with_fed_input() if is_fed else allowed
    return all(_is_layer_covered(layer, matches) or _is_shell_code_covered(layer, place, inside) for layer in wrapped)


def _runs_its_input(program: shell.ShellWord) -> bool:
    return programs.normalize_program_name(program.text) in programs.RUN_THEIR_INPUT


def _is_layer_covered(layer: CommandLayer, matches: Sequence[tuple[int, frozenset[int]]]) -> bool:
    """Returns whether a rule that starts here, or an outer one that spells out the program called here, covers the layer."""
    return any(
        (start == layer.start or layer.start in spelled_out) and layer.spelled_out <= spelled_out
        for start, spelled_out in matches
    )


def _is_shell_code_covered(layer: CommandLayer, place: WorkingDirectories, allowed: AllowedPatterns) -> bool:
    return layer.text is not None and _is_script_covered(shell.parse_script(layer.text), place, allowed) is True


def _is_glue(words: Words, place: WorkingDirectories) -> bool:
    """Returns whether the command only connects other commands and changes nothing by itself."""
    name, rest = words[0].text, [word.text for word in words[1:]]
    if name in _GLUE:
        return True
    if name == "printf":
        return bool(rest) and not rest[0].startswith("-")
    if name == "cd":
        return len(rest) == 1 and not words[1].wild and not rest[0].startswith("-") and place.locate(rest[0]) is not None
    if name in _TESTS:
        # A test of a variable evaluates the index in its name, including commands.
        return not any("[" in text or text in ("-v", "-R") for text in rest)
    if name == "set":
        return all(_SET_OPTIONS.fullmatch(text) for text in rest) and bool(rest)
    return name == "exit" and all(text.isdigit() for text in rest)
