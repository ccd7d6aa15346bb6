"""Starts the processes of runs: commands, MCP servers, programs in terminals, runtimes of flows. Each gets git's overrides. A
process in a sandbox also gets the filter of system calls, an empty session keyring, and the files that must exist on disk while
it runs.

The options that `Sandbox.wrap` makes contain one argument that only `popen` can replace; a sandbox that is started in another way
fails at that argument and never runs without its protection.

Git's overrides are settings for every command that we start, in any repository: `git status` must not run a program because of a
folder that a command or a download has made. Settings in the environment take precedence over those of any file.
"""

import ctypes
import logging
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import IO

from switchtower.tools.sandboxes import seccomp

_JOIN_SESSION_KEYRING = 1

ReleaseCallback = Callable[[], list[str]]
"""Removes what was put in place, after every process inside has ended. Returns the files that were quarantined."""
PrepareCallback = Callable[[], ReleaseCallback]
"""Puts the files in place that a sandbox needs on disk."""

log = logging.getLogger(__name__)


class PendingArgument(str):
    """The argument among bubblewrap's options that `popen` replaces. Bubblewrap itself refuses it as an unknown option."""

    __slots__ = ("prepare",)
    prepare: PrepareCallback | None

    def __new__(cls, prepare: PrepareCallback | None = None) -> "PendingArgument":
        word = super().__new__(cls, "--not-started-by-launch")
        word.prepare = prepare
        return word


class _GuardedProcess(subprocess.Popen[bytes]):
    """Releases what was prepared for it when it is reaped. Its starter reaps it after all processes inside have ended."""

    release: ReleaseCallback | None = None
    set_aside: tuple[str, ...] = ()

    def poll(self) -> int | None:
        code = super().poll()
        if code is not None:
            self._has_ended()
        return code

    def wait(self, timeout: float | None = None) -> int:
        code = super().wait(timeout)
        self._has_ended()
        return code

    def _has_ended(self) -> None:
        release, self.release = self.release, None
        if release is not None:
            self.set_aside = tuple(release())
            if self.set_aside:
                log.warning("a sandboxed command made files that git would have run programs for: %s", ", ".join(self.set_aside))


def list_set_aside(process: "subprocess.Popen[bytes]") -> tuple[str, ...]:
    """Returns files of the workspace that were renamed after the process was reaped, because git would have run the programs they
    name.
    """
    return process.set_aside if isinstance(process, _GuardedProcess) else ()


def popen(
    argv: Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | IO[bytes] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    bufsize: int = -1,
    start_new_session: bool = False,
) -> "subprocess.Popen[bytes]":
    """Like `subprocess.Popen`, for programs in a sandbox and without one. Raises `OSError` when the program cannot be started."""
    # Overrides that the owner has set for the daemon itself stay.
    variables = add_overrides(os.environ if env is None else env, chosen=list_overridden_keys(os.environ))

    def start(
        words: Sequence[str], kind: type["subprocess.Popen[bytes]"] = subprocess.Popen, pass_fds: Sequence[int] = ()
    ) -> "subprocess.Popen[bytes]":
        return kind(
            list(words),
            cwd=cwd,
            env=variables,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            bufsize=bufsize,
            start_new_session=start_new_session,
            pass_fds=pass_fds,
        )

    place = next((index for index, word in enumerate(argv) if isinstance(word, PendingArgument)), None)
    if place is None:
        return start(argv)
    pending = argv[place]
    assert isinstance(pending, PendingArgument)

    def start_guarded() -> _GuardedProcess:
        _join_new_keyring()
        descriptor = seccomp.open_filter()
        try:
            options = [] if descriptor is None else ["--seccomp", str(descriptor)]
            passed = [] if descriptor is None else [descriptor]
            process = start([*argv[:place], *options, *argv[place + 1 :]], _GuardedProcess, passed)
        finally:
            if descriptor is not None:
                os.close(descriptor)
        assert isinstance(process, _GuardedProcess)
        return process

    release = pending.prepare() if pending.prepare is not None else None
    try:
        process = _get_starter_thread().submit(start_guarded).result()
    except BaseException:
        if release is not None:
            release()
        raise
    process.release = release
    return process


@cache
def _get_starter_thread() -> ThreadPoolExecutor:
    """Returns the one thread that starts processes, for the rest of this process's life. A keyring belongs to a thread, so the
    others keep the user's own; and a guard dies with the thread that started it.
    """
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="tower-sandbox")


def _join_new_keyring() -> None:
    """Gives this thread, and the processes it starts from now on, an empty session keyring. Keys that a login has put into the
    user's keyring are then out of their reach.
    """
    architecture = seccomp.find_architecture()
    if architecture is None:
        return
    arguments = (ctypes.c_long(architecture.numbers["keyctl"]), ctypes.c_long(_JOIN_SESSION_KEYRING), ctypes.c_void_p(None))
    if _load_libc().syscall(*arguments) < 0:
        # Containers forbid the call, also to the processes inside; and with too many keys, the last command's keyring stays.
        log.debug("no new session keyring: %s", os.strerror(ctypes.get_errno()))


@cache
def _load_libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


OVERRIDES = {
    # A folder with `HEAD`, `objects` and `refs` is a repository only when it is named, as with `git --git-dir`.
    "safe.bareRepository": "explicit",
    # Otherwise `git status` runs the program that it names.
    "core.fsmonitor": "false",
    # An address such as `ext::sh -c …` is a command.
    "protocol.ext.allow": "never",
    # Only servers without git need the lists that this writes, into a folder that is read-only in a sandbox.
    "repack.updateServerInfo": "false",
}


def add_overrides(variables: Mapping[str, str], *, chosen: Iterable[str] = ()) -> dict[str, str]:
    """Returns the environment with these settings after its own ones, so that they take precedence. Keys in `chosen` are left
    out.
    """
    left_out = {key.lower() for key in chosen}
    count = _read_count(variables)
    added = dict(variables)
    for key, value in OVERRIDES.items():
        if key.lower() not in left_out:
            added[f"GIT_CONFIG_KEY_{count}"] = key
            added[f"GIT_CONFIG_VALUE_{count}"] = value
            count += 1
    added["GIT_CONFIG_COUNT"] = str(count)
    return added


def list_overridden_keys(variables: Mapping[str, str]) -> list[str]:
    """Returns the settings that an environment contains."""
    return [key for number in range(_read_count(variables)) if (key := variables.get(f"GIT_CONFIG_KEY_{number}"))]


def _read_count(variables: Mapping[str, str]) -> int:
    """Git refuses an invalid or too large number; then only our settings remain."""
    written = variables.get("GIT_CONFIG_COUNT", "")
    count = int(written) if written.isascii() and written.isdigit() and len(written) < 5 else 0
    return count if all(f"GIT_CONFIG_KEY_{number}" in variables for number in range(count)) else 0
