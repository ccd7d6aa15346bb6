"""Finds everything that a command may run (each command in it, and those inside wrappers, strings and here-documents), and the
folders in which it may run, as far as its words show.

Rules that ask or deny and the destructive list use it, so it errs towards too much: any word behind a wrapper may start the
command that it runs, and any longer argument of an interpreter may be code.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from switchtower.core.policy import paths, programs, shell

_DEEPEST = 4
_MOST_RUNS = 5_000
_TOKENS = re.compile(r"[^\s;&|()`{}<>$\"',!=\[\]\\#]+")
_DEFAULTS = re.compile(r":[-=+?]")
_MAY_BE_CODE = re.compile(r"[\s;&|<>()$`!'\"=]")
_GIT_CODE = re.compile(r"(--?[\w-]+|[\w.-]+)=|.*ext::|!", re.DOTALL)
_GIT_CODE_OPTIONS = frozenset({"-x", "-u", "-c", "foreach", "run"})
_GIT_LONG_CODE_OPTIONS = ("--exec", "--upload-pack", "--receive-pack", "--open-files-in-pager", "--extcmd", "--config-env")
_RUN_BY_OTHERS = re.compile(
    r"GIT|COMMAND|CMD|EDITOR|VISUAL|PAGER|BROWSER|SHELL|SSH|RSH|ASKPASS|DIFF|WRAPPER|LAUNCHER|HOOK|EXEC|SCRIPT|LESSOPEN|LESSCLOSE"
    r"|^ENV$|BASH_ENV|PS[0-4]$|^CC$|^CXX$|^LD$|OPTS$|OPTIONS$|FLAGS$|ARGS$|ALIAS"
)
"""Names of variables whose value programs run, or take options from."""
_SET_VARIABLES = frozenset({"export", "declare", "typeset", "readonly", "local"})
_ALIAS = re.compile(r"['\"]?alias\.[^=\s'\"]*['\"]?=?", re.IGNORECASE)
_PUSHES = frozenset({"send-pack", "http-push"})
_ROUGH_WINDOW = 16
_LONGEST_RUN = 1000
_MODULE_RUNNERS = frozenset({"python", "pypy"})
MOST_WORDS = 200
"""The limit on the words of a wrapper, each of which may start the command that it runs."""
_MOST_SCRIPTS = 50
_TOO_MUCH = "has too many commands"
_TAKE_SHELL = programs.SHELLS | programs.split_names("eval trap su runuser sudo ssh watch script flock parallel xargs hyperfine")

Words = tuple[shell.ShellWord, ...]


class Invocations:
    """Collects the invocations, with a limit on the amount of work."""

    def __init__(self, script: shell.Script) -> None:
        self.commands: list[Words] = []
        self.scripts: list[shell.Script] = []
        """The script itself, and arguments parsed as if they were scripts."""
        self.in_shell: list[shell.Script] = [script]
        """The scripts among them that a shell will certainly read."""
        self.code: list[str] = []
        """Arguments that may be program text."""
        self.doubts: list[str] = list(script.doubts)
        """The doubts about the script, and about the text that it passes to a shell."""
        self._add_script(script, 0)

    def _add_script(self, script: shell.Script, depth: int) -> None:
        self.scripts.append(script)
        for command in script.commands:
            self._add_command(command, depth)
        if script.documents and any(_runs_code(command) for command in script.commands):
            for body in script.documents:
                self._add_code(body, depth, is_shell=False)
        if script.unreadable:
            self._add_rough(script.text)

    def _add_command(self, command: shell.ShellCommand, depth: int) -> None:
        words = command.words
        self._add_settings(command)
        if not words:
            return
        self._add(words)
        if not words[0].known:
            self._add_rough(" ".join(word.text for word in words))
        if (module := find_module_argument(words)) is not None:
            self._add(words[module:])
        wraps = is_wrapper(words)
        if wraps:
            if len(words) > MOST_WORDS:
                self._add_doubt("has too many words")
            for start in range(1, min(len(words), MOST_WORDS)):
                if words[start].known:
                    self._add(words[start : start + _LONGEST_RUN])
        if wraps or _runs_code(command):
            is_shell = any(name in _TAKE_SHELL for name in list_program_names(words))
            for text in _iterate_code(words):
                self._add_code(text, depth, is_shell=is_shell)
            for redirect in command.redirects:
                if redirect.operator == "<<<":
                    self._add_code(redirect.target.text, depth, is_shell=is_shell)

    def _add_settings(self, command: shell.ShellCommand) -> None:
        """Adds commands in the values of variables that other programs run: `GIT_SSH_COMMAND`, `PAGER`, settings of git."""
        if not command.assignments and not (command.words and command.words[0].text in _SET_VARIABLES):
            return
        named = list(zip(command.assignments, (value.text for value in command.values), strict=False))
        if command.words and command.words[0].text in _SET_VARIABLES:
            named.extend(
                (name, value) for name, equals, value in (word.text.partition("=") for word in command.words[1:]) if equals
            )
        for name, value in named:
            if _RUN_BY_OTHERS.search(name.upper()):
                self._add_rough(value)
                if name.upper().startswith("GIT_CONFIG"):
                    self._add_rough(f"git {_ALIAS.sub(' git ', value)}")

    def _add_code(self, text: str, depth: int, *, is_shell: bool) -> None:
        self.code.append(text)
        if depth >= _DEEPEST or len(self.scripts) >= _MOST_SCRIPTS:
            self._add_doubt(_TOO_MUCH)
            return
        script = shell.parse_script(text)
        if is_shell:
            self.in_shell.append(script)
            for reason in script.doubts:
                self._add_doubt(reason)
        self._add_script(script, depth + 1)
        self._add_rough(text)

    def _add_rough(self, text: str) -> None:
        """Treats every word of a text as the start of a command, for text that is not shell or cannot be parsed."""
        found = _TOKENS.findall(_DEFAULTS.sub(" ", text[: shell.LONGEST]))
        tokens = [shell.ShellWord(token) for token in found[: _MOST_RUNS - len(self.commands) + 1]]
        for start in range(len(tokens)):
            self._add(tuple(tokens[start : start + _ROUGH_WINDOW]))

    def _add(self, words: Words) -> None:
        if len(self.commands) >= _MOST_RUNS:
            self._add_doubt(_TOO_MUCH)
            return
        self.commands.append(words)
        if "git" in words[0].text.lower():
            self.commands.extend(_expand_git_aliases(words))

    def _add_doubt(self, reason: str) -> None:
        if reason not in self.doubts:
            self.doubts.append(reason)


def _runs_code(command: shell.ShellCommand) -> bool:
    return any(name in programs.STRING_RUNNERS for name in list_program_names(command.words))


def is_wrapper(words: Words, start: int = 0) -> bool:
    wrapper = programs.WRAPPERS.get(programs.normalize_program_name(words[start].text))
    if wrapper is None:
        return False
    return not wrapper.verbs or any(word.text in wrapper.verbs or not word.known for word in words[start + 1 :])


def find_module_argument(words: Words, start: int = 0) -> int | None:
    """Returns the position of `pytest` in `python -m pytest`."""
    if programs.normalize_program_name(words[start].text) not in _MODULE_RUNNERS:
        return None
    for at in range(start + 1, len(words) - 1):
        if words[at].text == "-m":
            return at + 1
        if not words[at].text.startswith("-"):
            return None
    return None


def list_program_names(words: Words) -> Iterator[str]:
    """Yields the names of the programs that these words may call."""
    if not words:
        return
    wraps = is_wrapper(words)
    for place, word in enumerate(words):
        if place == 0 or wraps:
            yield programs.normalize_program_name(word.text)


def _iterate_code(words: Words) -> Iterator[str]:
    is_git = programs.normalize_program_name(words[0].text) == "git"
    for place, word in enumerate(words[1:], start=1):
        if not _MAY_BE_CODE.search(word.text):
            continue
        # Most long words of git are messages; only these are commands.
        if is_git and not _GIT_CODE.match(word.text) and not _takes_code(words[place - 1].text):
            continue
        yield word.text.replace("ext::", "ext ")


def _takes_code(option: str) -> bool:
    """Returns whether the word behind this option of git, shortened or not, is a command."""
    if option in _GIT_CODE_OPTIONS:
        return True
    return len(option) > 2 and option.startswith("--") and any(known.startswith(option) for known in _GIT_LONG_CODE_OPTIONS)


def _expand_git_aliases(words: Words) -> Iterator[Words]:
    """Yields other forms of a git call: `git-push`, an alias that it defines itself, a plumbing command of `push`."""
    name = programs.normalize_program_name(words[0].text)
    git = shell.ShellWord("git")
    if name.startswith("git-"):
        yield (git, shell.ShellWord(name.removeprefix("git-")), *words[1:])
    if name != "git":
        return
    for place, word in enumerate(words[1:], start=1):
        if word.text in _PUSHES:
            yield (git, shell.ShellWord("push"), *words[place + 1 :])
        alias = _ALIAS.search(word.text)
        if alias is None:
            continue
        meant = " ".join((word.text[alias.end() :], *(later.text for later in words[place + 1 :])))
        tokens = tuple(shell.ShellWord(token) for token in _TOKENS.findall(meant)[:_ROUGH_WINDOW])
        yield (git, *tokens)
        yield from (tokens[at:] for at in range(len(tokens)))


_CHANGES_FOLDER = frozenset({"cd", "chdir", "pushd", "popd"})
_MOST_FOLDERS = 4
_THROUGH_PROC = re.compile(r"/+proc/+[^/]+/+(?:task/+[^/]+/+)?(cwd|root)(?=/|$)")


class WorkingDirectories(Struct, frozen=True):
    workspace: str = ""
    bases: tuple[paths.Parts, ...] = ((),)
    """The folders of the workspace that it may run in."""
    outside: tuple[paths.Parts, ...] = ()
    """The folders elsewhere that it may run in, from the root of the file system."""
    astray: bool = False
    """It changes to a folder outside, or to an unknown one."""
    lost: bool = False
    """It changes to an unknown folder."""

    @property
    def has_moved(self) -> bool:
        """Returns whether some of it may run in another folder than the workspace's own."""
        return self.astray or self.bases != ((),)

    def locate(self, path: str) -> list[paths.Parts] | None:
        """Returns where a path leads in the workspace; None when it may lead out of it."""
        if self.astray and not path.startswith("/"):
            return None
        found = self.locate_possible(path)
        return found if len(found) == len(self.bases) else None

    def locate_possible(self, path: str) -> list[paths.Parts]:
        """Returns where a path may lead in the workspace; targets outside of it are left out."""
        located = (paths.locate_in_workspace(path, self.workspace, base) for base in self.bases)
        return [parts for parts in located if parts is not None]

    def locate_reachable(self, path: str) -> list[paths.Parts]:
        """Returns where a path may lead in the workspace, also through other folders. Rules that ask or deny use it: it errs
        towards too much.
        """
        if path.startswith("/") and (through := _THROUGH_PROC.match(path)):
            path = path[through.end() :] if through[1] == "root" else f".{path[through.end() :]}"
        found = self.locate_possible(path)
        if not path.startswith(("/", "~")) and not self.outside and not self.lost and ".." not in path:
            return found
        home = paths.make_absolute(self.workspace)
        for base in (*((*home, *base) for base in self.bases), *self.outside):
            parts = paths.make_absolute(path, base)
            if paths.is_below(parts, home):
                found.append(parts[len(home) :])
        if home and (self.lost or path.startswith("~")):
            parts = paths.make_absolute(path.lstrip("~"))
            found.extend(
                parts[at + 1 :] for at, part in enumerate(parts) if paths.normalize_name(part) == paths.normalize_name(home[-1])
            )
        return found


def track_directories(commands: Iterable[Words], workspace: str) -> WorkingDirectories:
    """Returns where these commands may be by the end. A `cd` may fail or be in a subshell, so earlier folders count too."""
    bases: list[paths.Parts] = [()]
    outside: list[paths.Parts] = []
    home = paths.make_absolute(workspace)
    for words in commands:
        if words[0].text not in _CHANGES_FOLDER:
            continue
        target = words[1] if len(words) == 2 and words[0].text == "cd" else None
        is_known = target is not None and target.known and not target.wild and not target.text.startswith(("-", "~"))
        if target is None or not is_known or len(bases) + len(outside) > _MOST_FOLDERS:
            return WorkingDirectories(workspace, tuple(bases), tuple(outside), astray=True, lost=True)
        entered = [paths.locate_in_workspace(target.text, workspace, base) for base in bases]
        ways = [(*home, *base) for base, changed in zip(bases, entered, strict=True) if changed is None]
        for way in (paths.make_absolute(target.text, base) for base in (*ways, *outside)):
            if paths.is_below(way, home):
                entered.append(way[len(home) :])
            outside.append(way)
        bases = list(dict.fromkeys((*bases, *(changed for changed in entered if changed is not None))))
        outside = list(dict.fromkeys(outside))
    return WorkingDirectories(workspace, tuple(bases), tuple(outside), astray=bool(outside))
