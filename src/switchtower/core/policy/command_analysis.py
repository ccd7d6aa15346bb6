"""Analyzes one shell command: what it runs, names and writes, and what is uncertain about it. It only reports facts; the judge
decides what follows from them.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from switchtower.core.policy import arguments, invocations, paths, patterns, programs, shell
from switchtower.core.policy import destructive as policy_destructive
from switchtower.core.policy.invocations import Invocations

_CODE_OPTION = re.compile(r"-[A-Za-z]*[cemEprVvh]|--(eval|version|help|print|command)(=.*)?", re.DOTALL)
_STDIN = re.compile(r"-|/dev/stdin|/dev/fd/.*|/proc/(self|[0-9]+)/fd/.*")
_GREPS = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "ack"})


class CommandAnalysis(Struct, frozen=True):
    text: str
    script: shell.Script
    runs: tuple[invocations.Words, ...]
    """Everything that it may run; it errs towards too much."""
    words: tuple[shell.ShellWord, ...]
    """All words that may name a file."""
    place: invocations.WorkingDirectories
    doubts: tuple[str, ...]
    """The reasons why it is uncertain what it runs; sentences that continue after "it"."""
    written: tuple[str, ...]
    """Files that it writes by redirection."""
    secret: str | None
    """A file of secrets that it names."""
    destructive: tuple[str, ...]
    """Every reason why it is on the destructive list."""
    found: Invocations


def analyze_command(text: str, workspace: str = "") -> CommandAnalysis:
    """The analysis is cached for a moment: after a command is judged by its words, the same words are resolved on the disk."""
    return _analyze_cached(text, workspace) if len(text) <= shell.LONGEST else _analyze(text, workspace)


def _analyze(text: str, workspace: str) -> CommandAnalysis:
    script = shell.parse_script(text)
    found = invocations.Invocations(script)
    where = invocations.track_directories(found.commands, workspace)
    return CommandAnalysis(
        text=script.text.strip(),
        script=script,
        runs=tuple(found.commands),
        words=tuple(_iterate_words(found)),
        place=where,
        doubts=(*found.doubts, *_find_doubts(script)),
        written=tuple(_iterate_written(found)),
        secret=_find_secret(script, found, where),
        destructive=policy_destructive.find_destructive_reasons(found),
        found=found,
    )


def find_unknown_git(seen: CommandAnalysis) -> str | None:
    """Returns a subcommand that is not built into git, so it is an alias or a program of that name."""
    for words in seen.runs:
        if programs.normalize_program_name(words[0].text) != "git":
            continue
        rest = [word.text for word in words[1:]]
        while rest and rest[0].startswith("-"):
            rest = rest[2 if rest[0] in programs.GIT_VALUE_OPTIONS else 1 :]
        if rest and rest[0] not in programs.GIT_COMMANDS:
            return rest[0]
    return None


class FileOperands(Struct, frozen=True):
    """The operands of a command that may name files. Only the disk knows where a name leads."""

    words: tuple[tuple[str, bool], ...]
    """Words, and values in them, that may be paths; and whether they have wildcards."""
    folders: tuple[paths.Parts, ...]
    """The folders of the workspace that it may run in, the workspace's own first."""


def find_operands(text: str, workspace: str) -> FileOperands:
    seen = analyze_command(text, workspace)
    named: dict[tuple[str, bool], None] = {}
    for script in seen.found.in_shell:
        for command in script.commands:
            for word in _may_be_files(command):
                for value in arguments.extract_values(word.text):
                    named[value, word.wild] = None
    for code in seen.found.code:
        for path in paths.extract_paths(code):
            named[path, False] = None
    return FileOperands(tuple(named), seen.place.bases)


def _may_be_files(command: shell.ShellCommand) -> Iterator[shell.ShellWord]:
    words = command.words
    if words and programs.normalize_program_name(words[0].text) not in programs.SPEAKERS:
        if "/" in words[0].text:
            yield words[0]
        yield from words[1:]
    yield from command.values
    yield from (redirect.target for redirect in command.redirects if redirect.file is not None)


_analyze_cached = lru_cache(maxsize=16)(_analyze)


def is_matched_by(seen: CommandAnalysis, pattern: patterns.CommandPattern) -> bool:
    """Rules that ask or deny: returns whether some part of the command may be this command."""
    if pattern.whole:
        return pattern.text == seen.text
    return any(patterns.match_command_loosely(pattern, words) for words in seen.runs)


def has_path_match(seen: CommandAnalysis, pattern: paths.PathPattern) -> bool:
    """Rules that ask or deny: returns whether some word of the command may be this path."""
    return any(
        paths.match_path_loosely(pattern, parts, seen.place.workspace, wild=word.wild)
        for word in seen.words
        for value in arguments.extract_values(word.text)
        for parts in seen.place.locate_reachable(value)
    )


def _find_doubts(script: shell.Script) -> Iterator[str]:
    for command in script.commands:
        words = command.words
        if not words:
            continue
        if not words[0].known or words[0].wild or not words[0].text.isascii() or not words[0].text:
            yield "calls a command whose name is not written out"
        # Any word behind a wrapper may start the command that it runs.
        starts = range(min(len(words), invocations.MOST_WORDS) if invocations.is_wrapper(words) else 1)
        if any(_is_fed(words, start) for start in starts):
            yield "runs a command on words that are not known before it runs"
        if any(_reads_code(words[start:]) for start in starts):
            yield "runs code that it reads from its input"


def _is_fed(words: invocations.Words, start: int) -> bool:
    return invocations.is_wrapper(words, start) and programs.WRAPPERS[programs.normalize_program_name(words[start].text)].feeds


def _reads_code(words: invocations.Words) -> bool:
    name = programs.normalize_program_name(words[0].text)
    if name not in programs.INTERPRETERS:
        return False
    rest = [word.text for word in words[1:]]
    if not rest or any(_STDIN.fullmatch(text) for text in rest) or (name in programs.SHELLS and "-s" in rest):
        return True
    return rest[0].startswith("-") and not any(_CODE_OPTION.fullmatch(text) for text in rest)


def _find_secret(script: shell.Script, found: invocations.Invocations, where: invocations.WorkingDirectories) -> str | None:
    for command in script.commands:
        is_grep = bool(command.words) and programs.normalize_program_name(command.words[0].text) in _GREPS
        for word in (*command.words, *command.values, *(redirect.target for redirect in command.redirects)):
            named = paths.find_secret_in_code(word.text) if is_grep else None
            if not is_grep or word.wild:
                named = named or paths.find_secret_file(word.text, where.bases, wildcards=word.wild)
            if named is not None:
                return named
    if script.unreadable and (named := paths.find_secret_in_code(script.text)) is not None:
        return named
    return next((named for code in found.code if (named := paths.find_secret_in_code(code)) is not None), None)


def _iterate_words(found: invocations.Invocations) -> Iterator[shell.ShellWord]:
    for script in found.scripts:
        for command in script.commands:
            yield from command.words
            yield from command.values
            yield from (redirect.target for redirect in command.redirects if redirect.file is not None)
    # Text that is not shell, or cannot be parsed as shell, is only searched for words that look like paths.
    for text in (*found.code, *(script.text for script in found.scripts if script.unreadable)):
        yield from (shell.ShellWord(path) for path in paths.extract_paths(text))


def _iterate_written(found: invocations.Invocations) -> Iterator[str]:
    for script in found.in_shell:
        for command in script.commands:
            yield from (redirect.file for redirect in command.redirects if redirect.writes and redirect.file is not None)
