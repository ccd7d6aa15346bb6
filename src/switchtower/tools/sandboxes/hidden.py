"""Places that nothing in a sandbox has to see: where people and programs keep keys, and doors to services that would do on
their behalf what the sandbox forbids. Names only; whether a place exists is looked up when a sandbox is made.
"""

import os
import pwd
from collections.abc import Iterable, Mapping
from pathlib import Path

from switchtower import config

_IN_HOMES = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".password-store",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".terraform.d/credentials.tfrc.json",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/git/credentials",
    ".config/op",
    ".config/rclone",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    # Browsers keep logged-in sessions, and shells what was once typed on a command line.
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".psql_history",
    ".mysql_history",
    # Other agents' logins.
    ".claude.json",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".config/github-copilot",
    ".push",
)
_ELSEWHERE = (
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers.d",
    # Whoever may talk to these is as good as root.
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
    "/var/lib/incus/unix.socket",
)


def list_hidden_paths(environ: Mapping[str, str] = os.environ, also: Iterable[str | os.PathLike[str]] = ()) -> tuple[str, ...]:
    """All of them, for this user: the usual ones, the tower's own folders and socket, and `also`."""
    homes = {environ.get("HOME") or "", _find_account_home()} - {""}
    named = [*_ELSEWHERE, *(f"{home}/{place}" for home in sorted(homes) for place in _IN_HOMES)]
    own_home = environ.get("TOWER_HOME")
    named += map(str, config.locate(Path(own_home).expanduser() if own_home else None, environ))
    named += [path for variable in ("TOWER_SOCKET", "PUSHD_SOCKET") if (path := environ.get(variable))]
    return tuple(dict.fromkeys([*named, *(os.fspath(place) for place in also)]))


def _find_account_home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""
