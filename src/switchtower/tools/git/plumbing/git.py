"""Calling git so that nothing but git runs: no hooks, no file watcher, no pager, no network, none of the daemon's `GIT_*`
variables. Which repository it works on is told to it; it never looks for one unless asked to.
"""

import os
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import IO

from msgspec import Struct, field

from switchtower.tools.git.plumbing.unavailable import GitUnavailable
from switchtower.tools.running import installed
from switchtower.tools.running.leash import CancelScope, HelperProgram

_SAFE = ("--no-pager", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=", "-c", "core.logAllRefUpdates=false")
_ALONE = {
    "GIT_ALLOW_PROTOCOL": "none",  # a missing object of a partial clone would be fetched, by a command of the repository's choice
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
}
_TO_THE_LETTER = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_ATTR_NOSYSTEM": "1", "LC_ALL": "C"}
OWN_WORDS_ONLY = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
"""Leaves the user's configuration out too."""
_OUTPUT_LIMIT = 8 * 1024 * 1024
_COMPLAINT_LIMIT = 500


class GitError(Exception):
    """Git ended with an error; the message is its own last line."""


class GitOutcome(Struct, frozen=True):
    exit_code: int
    printed: bytes
    complaint: str


class GitRunner(Struct, frozen=True):
    """Git in one folder, with these variables on top of the safe ones."""

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
        """What it printed and how it ended. Raises `Failed` when it prints too much."""
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
        """What it printed. Raises `Failed` for an exit code other than 0."""
        attempt = self.try_run(cancel_scope, *args, stdin=stdin)
        if attempt.exit_code != 0:
            raise GitError(attempt.complaint)
        return attempt.printed


def find_git() -> str:
    found = installed.find_program("git")
    if found is None:
        raise GitUnavailable("git is not installed", hint="install git, version 2.31 or newer")
    return found


def build_git_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what would lead git elsewhere, and with what keeps it by itself."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**inherited, **_ALONE, **variables}
