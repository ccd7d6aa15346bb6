"""Builds bubblewrap's options: the whole disk is readable, the workspace is writable, and hidden places are invisible. It reads
the disk and starts nothing.

Mounts are listed parents first, so that deeper ones take precedence: a workspace below a hidden folder is visible, a hidden
folder below the workspace is not.

Placeholders are files and folders that exist in a repository while a sandboxed command runs, as targets for mounts, and are
removed afterwards. They change nothing for git: their content equals git's defaults. Several commands, of several daemons, may
run in one repository. Each holds a shared lock on the folder; the last one removes the placeholders. A placeholder under a mount
must stay: removing it from outside would remove the mount as well. The leftovers of a killed daemon are removed after the next
command.
"""

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import IntEnum
from functools import partial
from pathlib import Path, PurePosixPath

from msgspec import Struct

from switchtower.core import errors
from switchtower.tools.git import protected_paths, quarantine
from switchtower.tools.git.protected_paths import PLACEHOLDER_COMMONDIR, Placeholder
from switchtower.tools.sandboxes import launch

_NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
_PRIVATE = ("/tmp", "/var/tmp", "/run")  # noqa: S108 - the sandbox gets folders of its own in these places
"""These folders are empty at first, and are removed with the sandbox. `/run` contains the sockets of docker, of the desktop and
of key agents.
"""
_SEEN_IN_RUN = ("/run/current-system",)
"""Folders in which some systems keep their programs."""
_KERNEL_SWITCHES = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
"""These are writable for root, in a sandbox too, unless covered. Other users cannot write them anywhere."""
_KERNEL_KEYS = ("/proc/keys", "/proc/key-users")
"""Files that list the keys that a process could request from the kernel."""
_NO_WORKSPACE = ("/dev", "/proc", "/sys", "/run")
_DANGLING = (
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "DOCKER_HOST",
    "CONTAINER_HOST",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
)
"""Variables that name unreachable services."""


class _Kind(IntEnum):
    """The kinds of mounts, in the order in which they are made at one path."""

    EMPTY = 0
    READ = 1
    WRITE = 2
    FIXED = 3


class _Mount(Struct, frozen=True, order=True):
    depth: int
    kind: _Kind
    path: str


class BubblewrapFeatures(Struct, frozen=True):
    """The features that not every version of bubblewrap has."""

    disable_userns: bool = False
    """Forbids user namespaces inside, which requires one for the sandbox itself. The filter of system calls refuses them as
    well.
    """
    perms: bool = False
    """Gives a new folder its permissions, which takes half the time of making it read-only afterwards."""


def build_options(workspace: str, *, network: bool, hidden: Iterable[str] = (), abilities: BubblewrapFeatures) -> list[str]:
    """Returns everything between bubblewrap's own name and the command, which starts in the folder that bubblewrap is started in.
    Use `launch` to start it. Raises `SandboxUnavailable` for a workspace that no sandbox can be built around.
    """
    root = os.path.realpath(workspace)
    if root == "/" or any(PurePosixPath(root).is_relative_to(place) for place in _NO_WORKSPACE):
        raise errors.SandboxUnavailable(f"`{root}` cannot be a workspace in it", hint="choose a folder of your own")
    git = protected_paths.find_git_paths(root)
    return [
        launch.PendingArgument(partial(_prepare, root, git)),
        *(("--unshare-user", "--disable-userns") if abilities.disable_userns else ("--unshare-user-try",)),
        *_NAMESPACES,
        *([] if network else ["--unshare-net"]),
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
        *("--ro-bind", "/", "/"),
        *("--dev", "/dev"),
        *("--proc", "/proc"),
        *(word for switch in _KERNEL_SWITCHES if os.geteuid() == 0 for word in ("--ro-bind-try", switch, switch)),
        *(word for list_ in _KERNEL_KEYS if Path(list_).exists() for word in ("--dev-bind", os.devnull, list_)),
        *_build_mounts(root, git, network=network, hidden=hidden, perms=abilities.perms),
        *("--setenv", "TMPDIR", "/tmp"),  # noqa: S108
        *("--setenv", "XDG_CACHE_HOME", "/tmp/.cache"),  # noqa: S108 - the user's own cannot be written
        *(word for variable in _DANGLING for word in ("--unsetenv", variable)),
        "--",
    ]


def _prepare(root: str, git: protected_paths.GitPaths) -> launch.ReleaseCallback:
    watch = quarantine.RepositoryWatch(root, git)
    hold = PlaceholderHold(git.placeholders)

    def release() -> list[str]:
        hold.release()
        return watch.quarantine_changes()

    return release


def _build_mounts(
    root: str, git: protected_paths.GitPaths, *, network: bool, hidden: Iterable[str], perms: bool
) -> Iterator[str]:
    folders, files = _find_existing(hidden)
    mounts = {_make_mount(_Kind.EMPTY, place) for place in (*_PRIVATE, *folders, *files)}
    seen = {*_list_visible_in_run(network=network), *git.readable}.difference(_PRIVATE, "/")
    mounts |= {_make_mount(_Kind.READ, place) for place in seen}
    # A folder above a hidden place could be renamed, and another one made in its place; a mount cannot.
    below = [place for place in (*folders, *files) if place.startswith(f"{root}/")]
    above = {str(parent) for place in below for parent in PurePosixPath(place).parents if len(str(parent)) > len(root)}
    mounts |= {_make_mount(_Kind.WRITE, place) for place in (root, *git.writable, *(above - folders))}
    mounts |= {_make_mount(_Kind.FIXED, place) for place in git.fixed}
    paths = [mount.path for mount in mounts]
    bearing = {folder for folder in folders if any(path.startswith(f"{folder}/") for path in paths)}
    remounted = (bearing if perms else folders) - {root}
    for mount in sorted(mounts):
        if mount.kind is not _Kind.EMPTY:
            yield from ("--bind" if mount.kind is _Kind.WRITE else "--ro-bind", mount.path, mount.path)
        elif mount.path in files:
            yield from ("--dev-bind", os.devnull, mount.path)
        elif mount.path in folders and mount.path not in remounted:
            yield from ("--perms", "0555", "--tmpfs", mount.path)
        else:
            yield from ("--tmpfs", mount.path)
    # These come last, when everything below them is mounted.
    for place in sorted(remounted):
        yield from ("--remount-ro", place)


def _make_mount(kind: _Kind, path: str) -> _Mount:
    return _Mount(depth=path.count("/"), kind=kind, path=path)


def _list_visible_in_run(*, network: bool) -> Iterator[str]:
    yield from (place for place in _SEEN_IN_RUN if Path(place).exists())
    # The resolver's configuration is often a file below `/run`.
    resolver = os.path.realpath("/etc/resolv.conf")
    if network and resolver.startswith("/run/") and Path(resolver).is_file():
        yield resolver


def _find_existing(places: Iterable[str]) -> tuple[set[str], set[str]]:
    """Returns the folders and the files among them, by their real paths. A place that does not exist need not be hidden, nor can
    it appear where nothing can be written.
    """
    folders: set[str] = set()
    files: set[str] = set()
    for place in places:
        try:
            mode = os.stat(place).st_mode  # noqa: PTH116 - there are many, and this is done for each command
        except (OSError, ValueError):
            continue
        (folders if stat.S_ISDIR(mode) else files).add(os.path.realpath(place))
    return folders, files


_LOCK_TIMEOUT = 2.0
"""The seconds to wait for a lock that is held while placeholders are removed, which takes less than a millisecond."""
_PAUSE = 0.005

_made: set[str] = set()
"""The placeholders that this process has made, and may remove."""
_lock = threading.Lock()


class PlaceholderHold:
    """Holds placeholders until `release`. Raises `OSError` when they cannot be made."""

    def __init__(self, wanted: Iterable[Placeholder]) -> None:
        self._descriptors: dict[str, int] = {}
        self._wanted = tuple(wanted)
        try:
            for folder in sorted({os.path.dirname(one.path) for one in self._wanted}):  # noqa: PTH120
                self._descriptors[folder] = _lock_folder(folder)
            for one in self._wanted:
                _create_placeholder(one)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Must be called when every process in the sandbox has ended."""
        for folder, descriptor in self._descriptors.items():
            try:
                # This succeeds only when no other command has its mounts there.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_placeholders(one for one in self._wanted if os.path.dirname(one.path) == folder)  # noqa: PTH120
            except OSError:
                pass
            finally:
                os.close(descriptor)
        self._descriptors.clear()


def _lock_folder(folder: str) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EINTR) or time.monotonic() > deadline:
                os.close(descriptor)
                raise OSError(error.errno, f"`{folder}` is locked by another process") from error
            time.sleep(_PAUSE)
        else:
            return descriptor


def _create_placeholder(one: Placeholder) -> None:
    if os.path.lexists(one.path):
        return
    if one.content is None:
        os.mkdir(one.path, 0o755)  # noqa: PTH102 - as git makes it
    else:
        # The file is complete from its first moment: git outside may read it at any time.
        beside = f"{one.path}.{os.getpid()}.{threading.get_ident()}"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, one.content)
        finally:
            os.close(descriptor)
        os.rename(beside, one.path)  # noqa: PTH104
    with _lock:
        _made.add(one.path)


def _remove_placeholders(placeholders: Iterable[Placeholder]) -> None:
    for one in placeholders:
        with _lock:
            is_ours = one.path in _made
            _made.discard(one.path)
        with suppress(OSError):
            if one.content is None:
                if is_ours:
                    os.rmdir(one.path)  # noqa: PTH106 - git may have filled it from outside meanwhile; then it stays
            elif (is_ours or one.content == PLACEHOLDER_COMMONDIR) and Path(one.path).read_bytes() == one.content:
                os.unlink(one.path)  # noqa: PTH108
