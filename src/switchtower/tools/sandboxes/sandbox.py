"""The sandboxes for commands: `local` is the machine itself, `bubblewrap` a view of it in which only the workspace can be
changed.

An unavailable sandbox is refused with a remedy, never replaced by a weaker one. Probing starts a process and blocks for some
milliseconds; a sandbox that worked once is not probed again.

Hidden paths are where users and programs keep keys, and sockets of services that would do on their behalf what the sandbox
forbids. The list has names only; whether a path exists is checked when a sandbox is made.
"""

import os
import platform
import pwd
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from switchtower import config
from switchtower.core import errors
from switchtower.tools.processes import marks
from switchtower.tools.sandboxes import bubblewrap, launch, seccomp

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
    # Browsers keep logged-in sessions, and shells keep typed commands.
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
    # The logins of other agents.
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
    # Access to these is equivalent to root access.
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
    "/var/lib/incus/unix.socket",
)


def list_hidden_paths(environ: Mapping[str, str] = os.environ, also: Iterable[str | os.PathLike[str]] = ()) -> tuple[str, ...]:
    """Returns all hidden paths for this user: the usual ones, the daemon's own folders and socket, and `also`."""
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


NAMES = ("local", "bubblewrap", "modal")

_PROBE_TIME = 10.0
_SYSCTL = Path("/proc/sys")
_SWITCHES = (
    # The entries are the setting's name, its value when it forbids user namespaces, and the value that allows them.
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "10000"),
)


class Sandbox(Struct, frozen=True):
    """One way to run commands. `choose_sandbox` makes it; without a guard it is the machine itself."""

    name: str
    network: bool = True
    hidden: tuple[str, ...] = ()
    guard: str | None = None
    """The program that builds it and runs the command in it; when it ends, every process inside ends at once."""
    abilities: bubblewrap.BubblewrapFeatures = bubblewrap.BubblewrapFeatures()

    def wrap(self, argv: Sequence[str], workspace: str) -> list[str]:
        """Returns the command that runs the same program in this sandbox; `launch.popen` starts it. Raises `SandboxUnavailable`
        for a workspace that it cannot be built around.
        """
        if self.guard is None:
            return list(argv)
        options = bubblewrap.build_options(workspace, network=self.network, hidden=self.hidden, abilities=self.abilities)
        return [self.guard, *options, *argv]


LOCAL = Sandbox("local")


class SandboxProblem(Struct, frozen=True):
    reason: str
    remedy: str


_hidden: tuple[str | os.PathLike[str], ...] = ()


def configure(*, hide: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Sets, once at start, further paths that every sandbox hides, in addition to the usual places of keys and to the daemon's
    own folders according to the environment.
    """
    global _hidden
    _hidden = tuple(hide)


def choose_sandbox(name: str, *, network: bool = False) -> Sandbox:
    """Returns the sandbox of that name. `network` gives commands network access; `local` cannot deny it. Raises
    `SandboxUnavailable` with a remedy.
    """
    trouble = _find_problem(name)
    if trouble is not None:
        raise errors.SandboxUnavailable(trouble.reason, hint=trouble.remedy)
    if name == LOCAL.name:
        return LOCAL
    guard = _find_bubblewrap()
    assert guard is not None, "it has just been tried out"
    return Sandbox(name, network=network, hidden=list_hidden_paths(also=_hidden), guard=guard, abilities=_worked[guard])


def find_best_available() -> tuple[str, SandboxProblem | None]:
    """Returns the strongest available sandbox; with `local`, also the reason why there is no other."""
    trouble = _find_problem("bubblewrap")
    return ("bubblewrap", None) if trouble is None else (LOCAL.name, trouble)


def probe_sandbox(name: str) -> str | None:
    """Returns the reason why the sandbox of that name is unavailable, and the remedy; `None` when it is available."""
    trouble = _find_problem(name)
    return None if trouble is None else f"{trouble.reason}; hint: {trouble.remedy}"


def describe_missing_filter() -> str | None:
    """Returns what a sandbox on this machine lacks, for an architecture without a table of system calls."""
    if seccomp.find_architecture() is not None:
        return None
    return f"system calls are not filtered on {platform.machine()}, and the session keyring is passed on"


def _find_problem(name: str) -> SandboxProblem | None:
    match name:
        case "local":
            return None
        case "bubblewrap":
            guard = _find_bubblewrap()
            if guard is None:
                return SandboxProblem("`bwrap` is not installed", "install it, as with `apt install bubblewrap`, or use `local`")
            return None if guard in _worked else _try_out(guard)
        case "modal":
            return SandboxProblem("`modal` is not configured", "use `bubblewrap`, or `local`, which runs in the workspace itself")
        case _:
            known = ", ".join(f"`{known}`" for known in NAMES)
            return SandboxProblem(f"there is no sandbox `{name}`", f"use one of {known}")


_worked: dict[str, bubblewrap.BubblewrapFeatures] = {}
"""The guards that have built a sandbox here, and their features."""


def _try_out(guard: str) -> SandboxProblem | None:
    """Builds a sandbox to test it. Failures are not cached: once the remedy is applied, the next session has its sandbox. A guard
    that cannot forbid user namespaces here is accepted: the filter refuses them too.
    """
    known = _read_abilities(guard)
    for disable_userns in (True, False) if known.disable_userns else (False,):
        abilities = bubblewrap.BubblewrapFeatures(disable_userns=disable_userns, perms=known.perms)
        trouble = _build_one(Sandbox("bubblewrap", network=False, guard=guard, abilities=abilities))
        if trouble is None:
            _worked[guard] = abilities
            break
    return trouble


def _read_abilities(guard: str) -> bubblewrap.BubblewrapFeatures:
    argv = [guard, "--help"]
    try:
        shown = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_TIME, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return bubblewrap.BubblewrapFeatures()
    return bubblewrap.BubblewrapFeatures(disable_userns=b"--disable-userns" in shown.stdout, perms=b"--perms" in shown.stdout)


def _build_one(candidate: Sandbox) -> SandboxProblem | None:
    with tempfile.TemporaryDirectory(prefix="tower-probe-") as folder:
        try:
            process = launch.popen(
                candidate.wrap(["true"], folder), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        except OSError as error:
            return SandboxProblem(f"`bwrap` cannot be started: {error.strerror}", f"look at `{candidate.guard}`")
        with process:
            try:
                _, complaint = process.communicate(timeout=_PROBE_TIME)
            except subprocess.TimeoutExpired:
                process.kill()
                return SandboxProblem(
                    f"`bwrap` did not finish within {_PROBE_TIME:.0f} s", "try `bwrap --ro-bind / / true` by hand"
                )
    if process.returncode == 0:
        return None
    said = complaint.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
    return SandboxProblem(f"`bwrap` does not work here ({said[-1]})", _describe_remedy())


def _describe_remedy() -> str:
    for switch, forbidding, allowing in _SWITCHES:
        with suppress(OSError):
            if _SYSCTL.joinpath(*switch.split(".")).read_text().strip() == forbidding:
                return f"user namespaces are forbidden; `sudo sysctl -w {switch}={allowing}` allows them"
    return "in a container, allow it to create namespaces and to mount `/proc`; or use `local`"


def _find_bubblewrap() -> str | None:
    return marks.find_program("bwrap")
