"""What a command sees of the daemon's environment: all that makes programs work, and no keys.

Left out: the variables that the daemon's own keys come from, whatever has a secret's name, and the daemon's internals. Set:
what every program without a person in front of it wants, so that none waits for an answer or shows a page at a time.

Where the programs are that we run ourselves, such as git. Never one of the current folder: that may be a workspace's."""

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
"""What lets people and hosts in."""
_SECRET_SETTINGS = frozenset({"TOWER_STORE", "TOWER_NOTIFY_WEBHOOK"})
"""Settings that may hold a password or an address that is one."""
_OUR_FOLDER = frozenset({"PWD", "OLDPWD"})
"""Where the daemon is says nothing about where a command is."""
_SECRET_TOO = re.compile(
    # What redaction lets pass, because there the value can be looked at as well.
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
"""Would open a window, or colour what is not shown on a terminal. Colour is off in a pipe as it is; `NO_COLOR` is left to
the user, because some programs' tests behave differently under it."""


@lru_cache(maxsize=1024)
def is_secret(name: str) -> bool:
    """Whether a variable of this name is likely to hold a secret."""
    return names.classify_name(name) is not None or _SECRET_TOO.search(name) is not None


def build_environment(
    around: Mapping[str, str], *, secret_variables: Iterable[str] = (), allowed: Iterable[str] = ()
) -> dict[str, str]:
    """The environment for commands, made from the one around us. `secret_variables` are left out whatever their names look
    like; `allowed` are passed on although they look like secrets or were named as such."""
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
    """Whether a variable is the daemon's own and nobody else's business."""
    return name.startswith(_INTERNAL_PREFIX) or name in _INTERNAL


class EnvironmentRules(Struct, frozen=True):
    secret_variables: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()


_rules = EnvironmentRules()


def configure(*, secret_variables: Iterable[str] = (), allowed: Iterable[str] = ()) -> None:
    """Says, once at start, which variables hold the daemon's keys and which ones commands may see all the same."""
    global _rules
    _rules = EnvironmentRules(frozenset(secret_variables), frozenset(allowed))


_withheld: dict[str, str] = {}


def withhold_variables(secret_variables: Iterable[str] = ()) -> None:
    """Takes the daemon's own keys out of the environment that every program inherits, once they have been read. They stay in
    memory for those programs that are promised them: see `whole`."""
    for name in (*DAEMONS_SECRETS, *_SECRET_SETTINGS, *secret_variables):
        if (value := os.environ.pop(name, None)) is not None:
            _withheld[name] = value


def get_full_environment() -> dict[str, str]:
    """The environment that the daemon was started with, keys included."""
    return {**os.environ, **_withheld}


def current_environment() -> dict[str, str]:
    """What commands get when nobody says otherwise."""
    return build_environment(get_full_environment(), secret_variables=_rules.secret_variables, allowed=_rules.allowed)


def find_program(program: str) -> str | None:
    """Its whole path; `None` when it is not installed. A search path may have `.` in it, which is passed over."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(program, path=os.pathsep.join(folder for folder in folders if PurePath(folder).is_absolute()))
