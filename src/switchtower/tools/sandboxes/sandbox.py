"""Where commands run: `local` is the machine itself, `bubblewrap` a view of it in which only the workspace can be changed.

A sandbox that cannot be had is refused with a remedy, never replaced by less. Probing starts a process and blocks for some
milliseconds; a sandbox that worked once is not probed again.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from switchtower.core import errors
from switchtower.tools.running import installed
from switchtower.tools.sandboxes import bubblewrap, hidden

NAMES = ("local", "bubblewrap", "modal")

_PROBE_TIME = 10.0
_SWITCHES = (
    # Each as the kernel shows it, what it is when it forbids user namespaces, and how to change that.
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0", "sudo sysctl -w user.max_user_namespaces=10000"),
)


class Sandbox(Struct, frozen=True):
    """One way to run commands. Made by `choose`; without a guard it is the machine itself."""

    name: str
    network: bool = True
    hidden: tuple[str, ...] = ()
    guard: str | None = None
    """The program that builds it, runs the command in it, and whose end is the end of everything inside, at once."""

    def wrap(self, argv: Sequence[str], workspace: str) -> list[str]:
        """The same program, run in this sandbox. Raises `SandboxUnavailable` for a workspace that it cannot be built around."""
        if self.guard is None:
            return list(argv)
        return [self.guard, *bubblewrap.options(workspace, network=self.network, hidden=self.hidden), *argv]


LOCAL = Sandbox("local")


class Trouble(Struct, frozen=True):
    reason: str
    remedy: str


_hidden: tuple[str | os.PathLike[str], ...] = ()


def configure(*, hide: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Says, once at start, what no sandbox may show, in addition to where keys usually are and to the tower's own folders as
    the environment names them."""
    global _hidden
    _hidden = tuple(hide)


def choose(name: str, *, network: bool = False) -> Sandbox:
    """The sandbox of that name. `network` lets commands reach it; `local` cannot keep them from it. Raises
    `SandboxUnavailable` with a remedy."""
    trouble = _trouble(name)
    if trouble is not None:
        raise errors.SandboxUnavailable(trouble.reason, hint=trouble.remedy)
    if name == LOCAL.name:
        return LOCAL
    return Sandbox(name, network=network, hidden=hidden.places(also=_hidden), guard=_bwrap())


def best_available() -> tuple[str, Trouble | None]:
    """The strongest sandbox that can be had here; with `local`, why there is no other."""
    trouble = _trouble("bubblewrap")
    return ("bubblewrap", None) if trouble is None else (LOCAL.name, trouble)


def is_less(name: str, than: str) -> bool:
    """Whether a command can do more in the first than in the second."""
    return name == LOCAL.name and than != LOCAL.name


def probe(name: str) -> str | None:
    """Why the sandbox of that name cannot be had, and what to do about it; `None` when it can."""
    trouble = _trouble(name)
    return None if trouble is None else f"{trouble.reason}; hint: {trouble.remedy}"


def _trouble(name: str) -> Trouble | None:
    match name:
        case "local":
            return None
        case "bubblewrap":
            guard = _bwrap()
            if guard is None:
                return Trouble("`bwrap` is not installed", "install it, as with `apt install bubblewrap`, or use `local`")
            return None if guard in _worked else _try_out(guard)
        case "modal":
            return Trouble("`modal` is not configured", "use `bubblewrap`, or `local`, which runs in the workspace itself")
        case _:
            known = ", ".join(f"`{known}`" for known in NAMES)
            return Trouble(f"there is no sandbox `{name}`", f"use one of {known}")


_worked: set[str] = set()


def _try_out(guard: str) -> Trouble | None:
    """Really builds one. Failures are not remembered: once the remedy is applied, the next session has its sandbox."""
    with tempfile.TemporaryDirectory(prefix="tower-probe-") as folder:
        candidate = Sandbox("bubblewrap", network=False, guard=guard)
        try:
            tried = subprocess.run(  # noqa: S603
                candidate.wrap(["true"], folder), stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_TIME, check=False
            )
        except subprocess.TimeoutExpired:
            return Trouble(f"`bwrap` did not finish within {_PROBE_TIME:.0f} s", "try `bwrap --ro-bind / / true` by hand")
        except OSError as error:
            return Trouble(f"`bwrap` cannot be started: {error.strerror}", f"look at `{guard}`")
    if tried.returncode == 0:
        _worked.add(guard)
        return None
    said = tried.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {tried.returncode}"]
    return Trouble(f"`bwrap` does not work here ({said[-1]})", _remedy())


def _remedy() -> str:
    for switch, forbidding, allowing in _SWITCHES:
        with suppress(OSError):
            if Path("/proc/sys", *switch.split(".")).read_text().strip() == forbidding:
                return f"user namespaces are forbidden; `sudo sysctl -w {switch}={allowing}` allows them"
    return "in a container, allow it to create namespaces and to mount `/proc`; or use `local`"


def _bwrap() -> str | None:
    return installed.path_of("bwrap")
