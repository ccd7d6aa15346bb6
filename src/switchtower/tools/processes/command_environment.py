"""The environment of commands: the daemon's environment with everything that programs need, and without keys.

It excludes the variables that hold the daemon's own keys, variables with a secret's name, and the daemon's internals. It sets
variables for programs without a user, so that none waits for an answer or starts a pager.

The programs that we run ourselves, such as git, are found here too, but never in the current folder: that may be a workspace.
"""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import PurePath

from msgspec import Struct

from switchtower.core.redact import names

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
