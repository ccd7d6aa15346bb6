"""Whether the rules that allow cover a command: all of it, each part, and nothing that they do not spell out and should have."""

import re
from collections.abc import Sequence

from msgspec import Struct

from switchtower.core.policy import arguments, commands, layers, patterns, programs, shell
from switchtower.core.policy.place import WorkingDirectories
from switchtower.core.policy.runs import Words

_SET_OPTIONS = re.compile(r"[-+][eux]+|-[eux]*o|pipefail|errexit|nounset")
_GLUE = frozenset({"pwd", "true", "false", ":", "echo"})
_TESTS = frozenset({"test", "["})
_COMPOUND = re.compile(r"\b(if|then|while|until|for|case|select)\b")
_LONGEST_PATTERN = 2000


class AllowedPatterns(Struct, frozen=True):
    """The patterns of rules that allow."""

    configured: Sequence[patterns.CommandPattern] = ()
    granted: Sequence[patterns.CommandPattern] = ()
    """Made by "always": for the folder and the standard input that the command had when it was approved."""
    is_fed: bool = False
    """All of it has another standard input than the command's own."""

    def select_for(self, place: WorkingDirectories, *, is_fed: bool) -> Sequence[patterns.CommandPattern]:
        """Those that hold for a command at this place."""
        if is_fed or place.has_moved:
            return self.configured
        return (*self.configured, *self.granted)

    def with_fed_input(self) -> "AllowedPatterns":
        return AllowedPatterns(self.configured, is_fed=True)


def is_covered(
    seen: commands.CommandAnalysis, configured: Sequence[patterns.CommandPattern], granted: Sequence[patterns.CommandPattern] = ()
) -> bool:
    """For rules that allow: each command in it is covered by one of these, or does nothing by itself."""
    if seen.doubts or not seen.script.commands:
        return False
    if any(pattern.is_any_command or (pattern.whole and pattern.text == seen.text) for pattern in (*configured, *granted)):
        return True
    return _is_script_covered(seen.script, seen.place, AllowedPatterns(configured, granted)) is True


def make_exact_pattern(seen: commands.CommandAnalysis) -> str | None:
    """A pattern for exactly this; None when there is none, or when nobody would read it."""
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
    """None when all of it does nothing by itself: no rule allows it, and no rule need."""
    if script.doubts or not script.commands:
        return False
    used: bool | None = None
    fed = _find_fed_commands(script)
    for number, command in enumerate(script.commands):
        if any(name not in layers.HARMLESS_VARIABLES for name in command.assignments):
            return False
        if any(not layers.is_harmless_value(value) for value in command.values):
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
    """The commands whose standard input is another than the script's own: behind a pipe, or with a redirection."""
    found: set[int] = set()
    for stages in script.pipelines:
        for first, last in stages[1:]:
            # The reader does not keep where an `if` ends, so all behind its beginning may be fed.
            found.update(range(first, len(script.commands) if _COMPOUND.search(script.text) else last))
    for number, command in enumerate(script.commands):
        if any("<" in redirect.operator for redirect in command.redirects):
            # Without words it is the redirection of a group, and which commands stand in that is not kept.
            found.update((number,) if command.words else range(len(script.commands)))
    return frozenset(found)


def _is_command_covered(words: Words, place: WorkingDirectories, allowed: AllowedPatterns, *, is_fed: bool) -> bool:
    wrapped = layers.split_layers(words, place)
    if wrapped is None or (is_fed and any(_runs_its_input(words[layer.start]) for layer in wrapped)):
        return False
    matches: list[tuple[int, frozenset[int]]] = []
    """Where a rule begins to match, and the places that it spells out."""
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


def _is_layer_covered(layer: layers.CommandLayer, matches: Sequence[tuple[int, frozenset[int]]]) -> bool:
    """By a rule that begins here, or by one from further out that spells out what is called here."""
    return any(
        (start == layer.start or layer.start in spelled_out) and layer.spelled_out <= spelled_out
        for start, spelled_out in matches
    )


def _is_shell_code_covered(layer: layers.CommandLayer, place: WorkingDirectories, allowed: AllowedPatterns) -> bool:
    return layer.text is not None and _is_script_covered(shell.parse_script(layer.text), place, allowed) is True


def _is_glue(words: Words, place: WorkingDirectories) -> bool:
    """What people put between commands and what changes nothing by itself."""
    name, rest = words[0].text, [word.text for word in words[1:]]
    if name in _GLUE:
        return True
    if name == "printf":
        return bool(rest) and not rest[0].startswith("-")
    if name == "cd":
        return len(rest) == 1 and not words[1].wild and not rest[0].startswith("-") and place.locate(rest[0]) is not None
    if name in _TESTS:
        # A test of a variable works out the index in its name, commands and all.
        return not any("[" in text or text in ("-v", "-R") for text in rest)
    if name == "set":
        return all(_SET_OPTIONS.fullmatch(text) for text in rest) and bool(rest)
    return name == "exit" and all(text.isdigit() for text in rest)
