"""Whether the rules that allow cover a command: all of it, each part, and nothing that they do not spell out and should have."""

import re
from collections.abc import Sequence

from msgspec import Struct

from switchtower.core.policy import arguments, commands, layers, patterns, programs, shell
from switchtower.core.policy.place import Place
from switchtower.core.policy.runs import Words

_SET_OPTIONS = re.compile(r"[-+][eux]+|-[eux]*o|pipefail|errexit|nounset")
_GLUE = frozenset({"pwd", "true", "false", ":", "echo"})
_TESTS = frozenset({"test", "["})
_COMPOUND = re.compile(r"\b(if|then|while|until|for|case|select)\b")
_LONGEST_PATTERN = 2000


class Allowed(Struct, frozen=True):
    """The patterns of rules that allow."""

    configured: Sequence[patterns.Pattern] = ()
    granted: Sequence[patterns.Pattern] = ()
    """Made by "always": for the folder and the standard input that the command had when it was approved."""
    is_fed: bool = False
    """All of it has another standard input than the command's own."""

    def at(self, place: Place, *, is_fed: bool) -> Sequence[patterns.Pattern]:
        """Those that hold for a command at this place."""
        if is_fed or place.has_moved:
            return self.configured
        return (*self.configured, *self.granted)

    def fed(self) -> "Allowed":
        return Allowed(self.configured, is_fed=True)


def covered_by(seen: commands.Look, configured: Sequence[patterns.Pattern], granted: Sequence[patterns.Pattern] = ()) -> bool:
    """For rules that allow: each command in it is covered by one of these, or does nothing by itself."""
    if seen.doubts or not seen.script.commands:
        return False
    if any(pattern.any_command or (pattern.whole and pattern.text == seen.text) for pattern in (*configured, *granted)):
        return True
    return _script_covered(seen.script, seen.place, Allowed(configured, granted)) is True


def pattern_for(seen: commands.Look) -> str | None:
    """A pattern for exactly this; None when there is none, or when nobody would read it."""
    if len(seen.text) > _LONGEST_PATTERN:
        return None
    listed = seen.script.commands
    if len(listed) == 1 and listed[0].words and not listed[0].assignments and not listed[0].redirects:
        exact = patterns.join(word.text for word in listed[0].words)
        return exact if _script_covered(seen.script, seen.place, Allowed([patterns.parse(exact)])) else None
    return seen.text if patterns.parse(seen.text).whole else None


def _script_covered(script: shell.Script, place: Place, allowed: Allowed) -> bool | None:
    """None when all of it does nothing by itself: no rule allows it, and no rule need."""
    if script.doubts or not script.commands:
        return False
    used: bool | None = None
    fed = _fed(script)
    for number, command in enumerate(script.commands):
        if any(name not in layers.HARMLESS_VARIABLES for name in command.assignments):
            return False
        if any(not layers.is_harmless_value(value) for value in command.values):
            return False
        if any(
            not redirect.writes and redirect.file and arguments.leads_out(redirect.file, place) for redirect in command.redirects
        ):
            return False
        if command.words and _command_covered(command.words, place, allowed, is_fed=allowed.is_fed or number in fed):
            used = True
        elif command.words and not _is_glue(command.words, place):
            return False
    return used


def _fed(script: shell.Script) -> frozenset[int]:
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


def _command_covered(words: Words, place: Place, allowed: Allowed, *, is_fed: bool) -> bool:
    wrapped = layers.of(words, place)
    if wrapped is None or (is_fed and any(_runs_its_input(words[layer.start]) for layer in wrapped)):
        return False
    matches: list[tuple[int, frozenset[int]]] = []
    """Where a rule begins to match, and the places that it spells out."""
    usable = allowed.at(place, is_fed=is_fed)
    for start in dict.fromkeys((0, *(layer.start for layer in wrapped))):
        for pattern in usable:
            spelled_out = patterns.covers(pattern, words[start:])
            if spelled_out is not None:
                matches.append((start, frozenset(start + at for at in spelled_out)))
    inside = allowed.fed() if is_fed else allowed
    return all(_layer_covered(layer, matches) or _told_to_shell(layer, place, inside) for layer in wrapped)


def _runs_its_input(program: shell.Word) -> bool:
    return programs.base_name(program.text) in programs.RUN_THEIR_INPUT


def _layer_covered(layer: layers.Layer, matches: Sequence[tuple[int, frozenset[int]]]) -> bool:
    """By a rule that begins here, or by one from further out that spells out what is called here."""
    return any(
        (start == layer.start or layer.start in spelled_out) and layer.spelled_out <= spelled_out
        for start, spelled_out in matches
    )


def _told_to_shell(layer: layers.Layer, place: Place, allowed: Allowed) -> bool:
    return layer.text is not None and _script_covered(shell.read(layer.text), place, allowed) is True


def _is_glue(words: Words, place: Place) -> bool:
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
