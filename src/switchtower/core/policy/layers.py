"""A command and the commands that it wraps, one inside the other, for rules that allow. Counts only what is certain.

Each layer has to be allowed: `timeout 9 npm test` by a rule for `npm test`, since a plain `timeout` changes nothing; `uv run
pytest -q` by a rule that spells out `pytest`. A wrapper that adds words of its own, such as `xargs`, has no layers.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from switchtower.core.policy import arguments, programs, runs, shell
from switchtower.core.policy.place import WorkingDirectories
from switchtower.core.policy.runs import Words

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
"""`make` expands what it finds in a variable, so a value has nothing in it that could be expanded."""


def is_harmless_value(value: shell.ShellWord) -> bool:
    return value.known and _HARMLESS_VALUE.fullmatch(value.text) is not None


class CommandLayer(Struct, frozen=True):
    start: int
    """The place of its first word."""
    spelled_out: frozenset[int]
    """The places of words that a rule must spell out."""
    text: str | None = None
    """What a shell is told to run, when that is all it does: allowed when this is."""


def split_layers(words: Words, place: WorkingDirectories) -> list[CommandLayer] | None:
    """The layers of a command, outermost first; None when a part of it cannot be told from its words."""
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
        if (module := runs.find_module_argument(words, start)) is not None:
            layers.append(CommandLayer(start, frozenset(range(start + 1, module))))
            return [*layers, CommandLayer(module, arguments.find_literal_words(words, module, place))]
        if not runs.is_wrapper(words, start):
            return [*layers, CommandLayer(start, arguments.find_literal_words(words, start, place))]
        wrapper = programs.WRAPPERS[base]
        if wrapper.feeds:
            return None
        inner, own = _skip_options(wrapper, words, start)
        layers.append(CommandLayer(start, own))
        start = inner
    return layers or None


def _skip_options(wrapper: programs.Wrapper, words: Words, start: int) -> tuple[int, frozenset[int]]:
    """Where the wrapped command begins, and the wrapper's own words: an unknown option may or may not take the next one."""
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
    """The place of the text in `sh -c TEXT`, when there is nothing else to it."""
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
