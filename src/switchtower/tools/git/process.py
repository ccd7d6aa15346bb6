"""Runs git so that nothing but git runs: no hooks, no file watcher, no pager, no network, none of the daemon's `GIT_*` variables.
The repository is given explicitly; git never searches for one unless asked to.

The few commands that need the repository's configuration run without the programs that it names: a checkout has to know about
line ends, but not about the repository's own programs. Filters that the user has set up for all repositories stay, such as
git-lfs. Hooks never run.

A repository is used only when git itself would work with it: not another user's, not a broken one, and not one that the folder
merely claims to belong to. Blocking work runs on a thread; work that takes too long is stopped and counts as unavailable.
"""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import PurePath
from typing import IO, TypeVar

from msgspec import Struct, field

from switchtower.tools import outcome
from switchtower.tools.git import repository
from switchtower.tools.processes import cancellation, marks
from switchtower.tools.processes.cancellation import CancelScope, HelperProgram


class GitUnavailable(Exception):
    """The operation is impossible. The message gives the reason, the hint gives the remedy."""

    def __init__(self, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{reason}; hint: {hint}" if hint else reason)
        self.reason = reason
        self.hint = hint


_SAFE = ("--no-pager", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=", "-c", "core.logAllRefUpdates=false")
_ALONE = {
    "GIT_ALLOW_PROTOCOL": "none",  # a missing object of a partial clone would be fetched, by a command of the repository
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
}
_TO_THE_LETTER = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_ATTR_NOSYSTEM": "1", "LC_ALL": "C"}
OWN_WORDS_ONLY = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
"""Ignores the user's configuration too."""
_OUTPUT_LIMIT = 8 * 1024 * 1024
_COMPLAINT_LIMIT = 500


class GitError(Exception):
    """Git ended with an error; the message is its own last line."""


class GitOutcome(Struct, frozen=True):
    exit_code: int
    printed: bytes
    complaint: str


class GitRunner(Struct, frozen=True):
    """Git in one folder, with these variables added to the safe ones."""

    cwd: str
    variables: Mapping[str, str] = field(default_factory=dict)

    def start(
        self,
        cancel_scope: CancelScope,
        *args: str,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int = subprocess.DEVNULL,
    ) -> AbstractContextManager[HelperProgram]:
        variables = build_git_environment({**_TO_THE_LETTER, **self.variables})
        return cancel_scope.start_program([find_git(), *_SAFE, *args], cwd=self.cwd, env=variables, stdin=stdin, stderr=stderr)

    def try_run(self, cancel_scope: CancelScope, *args: str, stdin: int | IO[bytes] = subprocess.DEVNULL) -> GitOutcome:
        """Returns the output and the exit code. Raises `GitError` when git prints too much."""
        printed = bytearray()
        with self.start(cancel_scope, *args, stdin=stdin, stderr=subprocess.PIPE) as running:
            for chunk in running.read_output():
                printed += chunk
                if len(printed) > _OUTPUT_LIMIT:
                    raise GitError(f"git {args[0]} printed too much")
            exit_code = running.exit_code
        lines = running.error_text.splitlines()
        complaint = lines[-1] if lines else f"git {args[0]} ended with exit code {exit_code}"
        return GitOutcome(exit_code, bytes(printed), complaint[:_COMPLAINT_LIMIT])

    def run(self, cancel_scope: CancelScope, *args: str, stdin: int | IO[bytes] = subprocess.DEVNULL) -> bytes:
        """Returns the output. Raises `GitError` for an exit code other than 0."""
        attempt = self.try_run(cancel_scope, *args, stdin=stdin)
        if attempt.exit_code != 0:
            raise GitError(attempt.complaint)
        return attempt.printed


def find_git() -> str:
    found = marks.find_program("git")
    if found is None:
        raise GitUnavailable("git is not installed", hint="install git, version 2.31 or newer")
    return found


def build_git_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns our environment, without variables that redirect git, and with those that isolate it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**inherited, **_ALONE, **variables}


T = TypeVar("T")

_END_TIMEOUT = 5.0
"""The seconds for the work to notice that it was stopped: no other task may change the workspace while it still does."""


async def run_with_timeout(
    seconds: float, work: Callable[[cancellation.CancelScope], T], *, run_id: str | None = None, hint: str
) -> T:
    """When this is cancelled or the time is up, the work is stopped before this raises."""
    try:
        async with asyncio.timeout(seconds) as clock:
            return await cancellation.run_in_cancel_scope(run_id, work, timeout_s=_END_TIMEOUT)
    except TimeoutError:
        if not clock.expired():
            raise
        raise GitUnavailable(f"it took longer than {seconds:g} seconds", hint=hint) from None


_THE_USERS = frozenset({b"system", b"global"})
_NO_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}


def override_programs(git: GitRunner, cancel_scope: CancelScope) -> GitRunner:
    """Returns the same runner with the programs of the current configuration overridden. Call it for the folder where git will
    work: some settings apply in one folder only.
    """
    listed = git.run(cancel_scope, "config", "--list", "--name-only", "--show-scope", "-z").split(b"\0")
    overrules = dict(_iterate_overrides(dict.fromkeys(zip(listed[::2], listed[1::2], strict=False))))
    variables = {"GIT_CONFIG_COUNT": str(len(overrules))}
    for number, (key, value) in enumerate(overrules.items()):
        variables[f"GIT_CONFIG_KEY_{number}"] = key
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return GitRunner(git.cwd, {**git.variables, **variables})


def _iterate_overrides(settings: dict[tuple[bytes, bytes], None]) -> Iterator[tuple[str, str]]:
    for scope, key in settings:
        section, _, rest = key.decode(errors="surrogateescape").partition(".")
        name, dot, _ = rest.rpartition(".")
        if section == "hook" and dot:
            yield f"hook.{name}.enabled", "false"
        elif section == "filter" and dot and scope not in _THE_USERS:
            yield from ((f"filter.{name}.{what}", value) for what, value in _NO_FILTER.items())


_QUESTIONS = ("--is-inside-git-dir", "--show-object-format", "--git-common-dir", "--show-toplevel")


class VerifiedRepository(repository.GitRepository, frozen=True, kw_only=True):
    algorithm: str
    """`sha1` or `sha256`."""


def find_verified_repository(root: str, cancel_scope: CancelScope) -> VerifiedRepository | None:
    """Returns `None` when there is no repository that may be used. Raises `GitUnavailable` for a folder that is part of a
    repository's store.
    """
    attempt = GitRunner(root).try_run(cancel_scope, "rev-parse", "--path-format=absolute", *_QUESTIONS)
    # A repository without a working tree answers the first questions and then fails.
    inside, *answers = os.fsdecode(attempt.printed).split("\n")
    if inside == "true" or any(part.casefold() == ".git" for part in PurePath(root).parts):
        raise GitUnavailable(f"`{root}` is part of a repository's own store", hint="work in a folder with files of your own")
    try:
        found = repository.find_repository(root)
    except outcome.ToolFailed:
        return None
    # The repository's configuration can name any folder as its working tree: then git's answer differs.
    expected = [os.path.realpath(found.common_dir), os.path.realpath(found.top), ""]
    algorithm, *places = answers if answers else [""]
    if attempt.exit_code != 0 or [os.path.realpath(place) if place else "" for place in places] != expected:
        return None
    return VerifiedRepository(top=found.top, git_dir=found.git_dir, common_dir=found.common_dir, algorithm=algorithm)
