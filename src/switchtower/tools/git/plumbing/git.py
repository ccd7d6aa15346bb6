"""Calling git so that nothing but git runs: no hooks, no file watcher, no pager, no network, none of the daemon's `GIT_*`
variables. Which repository it works on is told to it; it never looks for one unless asked to.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

from msgspec import Struct, field

from switchtower.tools.git.plumbing.stop import Stop
from switchtower.tools.git.plumbing.unavailable import Unavailable

_SAFE = ("--no-pager", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=", "-c", "core.logAllRefUpdates=false")
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",  # a missing object of a partial clone would be fetched, by a command of the repository's choice
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
OWN_WORDS_ONLY = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
"""Leaves the user's configuration out too."""
_OUTPUT_LIMIT = 8 * 1024 * 1024
_COMPLAINT_LIMIT = 500


class Failed(Exception):
    """Git ended with an error; the message is its own last line."""


class Attempt(Struct, frozen=True):
    exit_code: int
    printed: bytes
    complaint: str


class Git(Struct, frozen=True):
    """Git in one folder, with these variables on top of the safe ones."""

    cwd: str
    variables: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def start(
        self,
        stop: Stop,
        *args: str,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
    ) -> Iterator[subprocess.Popen[bytes]]:
        with stop.process(
            [program(), *_SAFE, *args], cwd=self.cwd, env=environment(self.variables), stdin=stdin, stderr=stderr
        ) as process:
            yield process

    def attempt(self, stop: Stop, *args: str, stdin: int | IO[bytes] = subprocess.DEVNULL) -> Attempt:
        """What it printed and how it ended. Raises `Failed` when it prints too much."""
        with tempfile.TemporaryFile() as complaints, self.start(stop, *args, stdin=stdin, stderr=complaints) as process:
            assert process.stdout is not None
            printed = process.stdout.read(_OUTPUT_LIMIT + 1)
            if len(printed) > _OUTPUT_LIMIT:
                raise Failed(f"git {args[0]} printed too much")
            exit_code = process.wait()
            stop.check()
            complaints.seek(0)
            lines = complaints.read(64 * 1024).decode(errors="replace").strip().splitlines()
        complaint = lines[-1] if lines else f"git {args[0]} ended with exit code {exit_code}"
        return Attempt(exit_code, printed, complaint[:_COMPLAINT_LIMIT])

    def output(self, stop: Stop, *args: str, stdin: int | IO[bytes] = subprocess.DEVNULL) -> bytes:
        """What it printed. Raises `Failed` for an exit code other than 0."""
        attempt = self.attempt(stop, *args, stdin=stdin)
        if attempt.exit_code != 0:
            raise Failed(attempt.complaint)
        return attempt.printed


def program() -> str:
    found = shutil.which("git")
    if found is None:
        raise Unavailable("git is not installed", hint="install git, version 2.31 or newer")
    # With `.` in the search path, a relative name would be looked up again in the folder that git is started in.
    return os.path.abspath(found)  # noqa: PTH100 - links stay as they are


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**inherited, **_ENVIRONMENT, **variables}
