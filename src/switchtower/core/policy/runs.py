"""Everything that a command may end up running: each command in it, and those inside wrappers, strings and here-documents.

For rules that ask or deny and for the destructive list, so it errs towards too much: whatever stands behind a wrapper may
be the command that it runs, and any longer argument of an interpreter may be code.
"""

import re
from collections.abc import Iterator

from switchtower.core.policy import programs, shell

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
"""Of a wrapper, each of which may be the beginning of the command that it runs."""
_MOST_SCRIPTS = 50
_TOO_MUCH = "has too many commands"
_TAKE_SHELL = programs.SHELLS | programs.split_names("eval trap su runuser sudo ssh watch script flock parallel xargs hyperfine")

Words = tuple[shell.ShellWord, ...]


class Invocations:
    """Gathers them, with a limit on how much it looks at."""

    def __init__(self, script: shell.Script) -> None:
        self.commands: list[Words] = []
        self.scripts: list[shell.Script] = []
        """The script itself, and arguments read as if they were one."""
        self.in_shell: list[shell.Script] = [script]
        """Those of them that a shell will certainly read."""
        self.code: list[str] = []
        """Arguments that may be program text."""
        self.doubts: list[str] = list(script.doubts)
        """Of the script, and of what it tells a shell to run."""
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
        """What variables say that other programs run: `GIT_SSH_COMMAND`, `PAGER`, settings of git."""
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
        """Every word of a text as if a command began there: for text that is not shell, or cannot be read."""
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
    """The place of `pytest` in `python -m pytest`."""
    if programs.normalize_program_name(words[start].text) not in _MODULE_RUNNERS:
        return None
    for at in range(start + 1, len(words) - 1):
        if words[at].text == "-m":
            return at + 1
        if not words[at].text.startswith("-"):
            return None
    return None


def list_program_names(words: Words) -> Iterator[str]:
    """The names of the programs that these words may call."""
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
    """Whether the word behind this option of git, shortened or not, is a command."""
    if option in _GIT_CODE_OPTIONS:
        return True
    return len(option) > 2 and option.startswith("--") and any(known.startswith(option) for known in _GIT_LONG_CODE_OPTIONS)


def _expand_git_aliases(words: Words) -> Iterator[Words]:
    """What a call of git may come to under another name: `git-push`, an alias that it brings along, a part of `push`."""
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
