"""Marks that distinguish a run's processes from all others, wherever they are. There are two marks, both inherited by child
processes, both readable from outside, and both derived from the run's id alone, so that they work even after the daemon has died:

- variables in the environment, which a program can drop (`env -i`);
- a number for a resource limit that limits nothing. No program resets it by accident, and only a privileged one can raise
  it. A program can lower it on purpose; `orphans` handles those.

The number is set before the program starts, so there is no moment at which it could start an unmarked process. A daemon that is
itself part of another daemon's run finds the first limit taken and uses the next: its processes carry both marks.

The environment of commands: the daemon's environment with everything that programs need, and without keys.

It excludes the variables that hold the daemon's own keys, variables with a secret's name, and the daemon's internals. It sets
variables for programs without a user, so that none waits for an answer or starts a pager.

The programs that we run ourselves, such as git, are found here too, but never in the current folder: that may be a workspace."""

import hashlib
import itertools
import logging
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import PurePath

from msgspec import Struct

from switchtower.core.redact import names
from switchtower.tools.processes import proc

_INTERNAL_PREFIX = "TOWER_"
_INTERNAL = frozenset({"PUSHD_SOCKET"})
DAEMONS_SECRETS = frozenset({"JWT_SECRET", "ADMIN_PASSWORD_HASH", "HOST_TOKEN"})
"""The variables that authenticate users and hosts."""
_SECRET_SETTINGS = frozenset({"TOWER_STORE", "TOWER_NOTIFY_WEBHOOK"})
"""Settings that may hold a password or a secret address."""
_OUR_FOLDER = frozenset({"PWD", "OLDPWD"})
"""The daemon's folder is irrelevant to a command."""
_SECRET_TOO = re.compile(
    # Redaction lets these names pass, because it can inspect the value as well.
    r"(?:^|_)(?:AUTH|AUTH_CONFIG|CONNECTION_STRING|COOKIE|CREDS?|DSN|JWT|PASS|PAT|SAS|WEBHOOK|WEBHOOK_URL)$"
    r"|ACCESS_KEY_ID$|PRIVATE_KEY|^npm_config_.*auth",
    re.IGNORECASE,
)

_NON_INTERACTIVE = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "EDITOR": "true",
    "VISUAL": "true",
    "SSH_ASKPASS_REQUIRE": "never",
    "PIP_NO_INPUT": "1",
    "DEBIAN_FRONTEND": "noninteractive",
    "TERM": "dumb",
}
_INTERACTIVE_VARIABLES = frozenset(
    {"SSH_ASKPASS", "GIT_ASKPASS", "SUDO_ASKPASS", "FORCE_COLOR", "CLICOLOR_FORCE", "GPG_TTY", "COLORTERM"}
)
"""These variables would open a window, or colour output that is not shown on a terminal. Colour is off in a pipe anyway;
`NO_COLOR` is left to the user, because some programs' tests behave differently under it.
"""


@lru_cache(maxsize=1024)
def is_secret(name: str) -> bool:
    """Returns whether a variable of this name is likely to hold a secret."""
    return names.classify_name(name) is not None or _SECRET_TOO.search(name) is not None


def build_environment(
    around: Mapping[str, str], *, secret_variables: Iterable[str] = (), allowed: Iterable[str] = ()
) -> dict[str, str]:
    """Returns the environment for commands, made from the given one. `secret_variables` are left out whatever their names look
    like; `allowed` are kept although they look like secrets or were named as such.
    """
    hidden = DAEMONS_SECRETS | frozenset(secret_variables)
    wanted = frozenset(allowed)
    passed = {
        name: value
        for name, value in around.items()
        if not is_internal(name)
        and name not in _OUR_FOLDER
        and (name in wanted or not (name in hidden or name in _INTERACTIVE_VARIABLES or is_secret(name)))
    }
    return passed | {name: value for name, value in _NON_INTERACTIVE.items() if name not in wanted}


def is_internal(name: str) -> bool:
    """Returns whether a variable is internal to the daemon."""
    return name.startswith(_INTERNAL_PREFIX) or name in _INTERNAL


class EnvironmentRules(Struct, frozen=True):
    secret_variables: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()


_rules = EnvironmentRules()


def configure(*, secret_variables: Iterable[str] = (), allowed: Iterable[str] = ()) -> None:
    """Sets, once at start, which variables hold the daemon's keys and which of them commands may see anyway."""
    global _rules
    _rules = EnvironmentRules(frozenset(secret_variables), frozenset(allowed))


_withheld: dict[str, str] = {}


def withhold_variables(secret_variables: Iterable[str] = ()) -> None:
    """Removes the daemon's own keys from the environment that every program inherits, once they have been read. They stay in
    memory for those programs that need them: see `get_full_environment`.
    """
    for name in (*DAEMONS_SECRETS, *_SECRET_SETTINGS, *secret_variables):
        if (value := os.environ.pop(name, None)) is not None:
            _withheld[name] = value


def get_full_environment() -> dict[str, str]:
    """Returns the environment that the daemon was started with, keys included."""
    return {**os.environ, **_withheld}


def current_environment() -> dict[str, str]:
    """Returns the default environment of commands."""
    return build_environment(get_full_environment(), secret_variables=_rules.secret_variables, allowed=_rules.allowed)


def find_program(program: str) -> str | None:
    """Returns the program's full path; `None` when it is not installed. A `.` in the search path is ignored."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(program, path=os.pathsep.join(folder for folder in folders if PurePath(folder).is_absolute()))


RUN_VARIABLE = "TOWER_RUN"
COMMAND_VARIABLE = "TOWER_COMMAND"

_COMMANDS = 100_000
_RUN_DIGITS = 13
_FIRST_MARK = 7 * 10**18
UNCLAIMED = 8 * 10**18
"""A number above all marks, so that it can be lowered to any: the daemon sets it for itself, and its own helpers inherit it."""

log = logging.getLogger(__name__)


class ProcessMark(Struct, frozen=True):
    """The mark of one command of a run, or of the whole run when `command` is None."""

    run_id: str
    command: int | None = None

    def make_number(self) -> int:
        """Returns nineteen digits: a seven, thirteen that follow from the run's id, five for the command."""
        assert self.command is not None
        return int(f"{self.make_run_digits()}{self.command:05}")

    def environment_variables(self) -> dict[str, str]:
        assert self.command is not None
        return {RUN_VARIABLE: self.run_id, COMMAND_VARIABLE: str(self.command)}

    def make_signature(self) -> "MarkSignature":
        assert self.run_id, "an empty run id would match a stranger's empty variable"
        in_environment = [f"{RUN_VARIABLE}={self.run_id}".encode()]
        if self.command is None:
            return MarkSignature(f" {self.make_run_digits()}".encode(), in_environment)
        in_environment.append(f"{COMMAND_VARIABLE}={self.command}".encode())
        return MarkSignature(f" {self.make_number()} ".encode(), in_environment)

    def is_number(self, number: int) -> bool:
        """Returns whether a process with this number carries the mark of the run."""
        return number // _COMMANDS == int(self.make_run_digits())

    def make_run_digits(self) -> str:
        """Returns the common first digits of the numbers of all commands of the run."""
        digest = hashlib.blake2b(self.run_id.encode(errors="surrogatepass"), digest_size=8).digest()
        return f"7{int.from_bytes(digest) % 10**_RUN_DIGITS:0{_RUN_DIGITS}}"


class MarkSignature(Struct, frozen=True):
    """A mark as it appears from outside."""

    in_limits: bytes
    in_environment: list[bytes]

    def is_present(self, pid: int, limits: bytes) -> bool:
        if self.in_limits in limits:
            return True
        limit = find_free_limit()
        if limit is not None and is_run_number(limit.parse_limit(limits)):
            return False  # another run's
        environment = proc.read_environment(pid) or ()
        return all(entry in environment for entry in self.in_environment)


class ResourceLimit(Struct, frozen=True):
    number: int
    name: bytes
    """The name in `/proc/PID/limits`."""
    option: str

    def parse_limit(self, limits: bytes) -> int | None:
        """Returns the hard limit in such a table; `None` when there is none."""
        values = limits.partition(self.name)[2].split(maxsplit=2)
        return int(values[1]) if len(values) > 1 and values[1].isdigit() else None


_LIMITS = (
    # Linux stopped counting file locks in 2.4.25. The other two limit nothing either when they are this high.
    ResourceLimit(10, b"Max file locks", "--locks"),
    ResourceLimit(15, b"Max realtime timeout", "--rttime"),
    ResourceLimit(5, b"Max resident set", "--rss"),
)

_numbers = itertools.count(int.from_bytes(os.urandom(4)))


def make_command_mark(run_id: str) -> ProcessMark:
    """Makes the mark of the run's next command."""
    return ProcessMark(run_id, next(_numbers) % _COMMANDS)


def find_free_limit() -> ResourceLimit | None:
    """Returns the limit that carries our marks: the first that no outer daemon has used."""
    if sys.platform != "linux":
        return None
    return next((limit for limit in _LIMITS if resource.getrlimit(limit.number)[1] in (resource.RLIM_INFINITY, UNCLAIMED)), None)


def is_run_number(number: int | None) -> bool:
    return number is not None and _FIRST_MARK <= number < UNCLAIMED


def wrap_with_mark(argv: Sequence[str], mark: ProcessMark) -> list[str]:
    """Returns a command that starts the same program with the mark's number. It is unchanged where the system does not support
    that.
    """
    limit = find_free_limit()
    return [*_build_limit_setter(limit, mark.make_number()), *argv] if limit is not None and _can_be_set(limit) else list(argv)


def _build_limit_setter(limit: ResourceLimit, number: int) -> list[str]:
    """Returns a command that sets the limit and becomes the program behind it, without a shell's side effects on the
    environment.
    """
    prlimit = _find_prlimit()
    if prlimit is not None:
        return [prlimit, f"{limit.option}={number}", "--"]
    code = f"import os,resource,sys;resource.setrlimit({limit.number},({number},{number}));os.execvp(sys.argv[1],sys.argv[1:])"
    return [sys.executable, "-ISc", code]


@cache
def _find_prlimit() -> str | None:
    return find_program("prlimit")


@cache
def _can_be_set(limit: ResourceLimit) -> bool:
    """Tries it once: some containers forbid the call, and then every command would fail."""
    number = ProcessMark("probe", 0).make_number()
    try:
        shown = subprocess.run(  # noqa: S603
            [*_build_limit_setter(limit, number), "cat", "/proc/self/limits"], capture_output=True, timeout=5, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        shown = b""
    if limit.parse_limit(shown) == number:
        return True
    log.warning("processes cannot be marked by a limit here; one that drops its environment may outlive its run")
    return False
