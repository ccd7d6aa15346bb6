"""Quarantines repositories that a sandboxed command has made in a workspace: after the command has ended, files that would make
git run programs are renamed, and the rest stays unchanged.

Git runs programs for every user who calls it in such a folder; for a repository that the workspace's own index lists as a
submodule, it does so even when it is called in the workspace. All processes of the command have ended by then. Other processes
may still write in the workspace, so no path is followed twice: each step uses a descriptor, and never a link.
"""

import mmap
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from switchtower.tools.git import protected_paths, repository

ASIDE = ".set-aside"
_DEPTH = 2
_MOST_FOLDERS = 200
_MOST_CONFIGURATION = 256 * 1024
_MOST_GITLINKS = 200
_CLOCKS_DIFFER = 0.05
"""The times of files come from a coarser clock."""
_CONFIGURATIONS = ("/config", "/config.worktree")
_GITLINK = (0o160000).to_bytes(4)

_HARMLESS = frozenset(
    {
        *(
            f"core.{name}"
            for name in ("repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase", "symlinks")
        ),
        *(f"core.{name}" for name in ("precomposeunicode", "autocrlf", "eol", "safecrlf", "worktree", "sparsecheckout")),
        *(f"core.{name}" for name in ("sparsecheckoutcone", "abbrev", "quotepath", "longpaths", "protectntfs", "protecthfs")),
        *(f"extensions.{name}" for name in ("objectformat", "refstorage", "partialclone", "compatobjectformat")),
        *(f"user.{name}" for name in ("name", "email", "useconfigonly")),
        *(f"remote.*.{name}" for name in ("url", "pushurl", "fetch", "push", "tagopt", "prune", "mirror", "promisor")),
        *(f"remote.*.{name}" for name in ("partialclonefilter", "followremotehead")),
        *(f"branch.*.{name}" for name in ("remote", "merge", "rebase", "pushremote", "description", "vscode-merge-base")),
        *(f"submodule.*.{name}" for name in ("url", "active", "branch", "ignore")),
        *("submodule.active", "submodule.recurse", "init.defaultbranch", "pull.rebase", "pull.ff", "push.default"),
        *(
            "push.autosetupremote",
            "fetch.prune",
            "merge.conflictstyle",
            "merge.ff",
            "gc.auto",
            "gc.autodetach",
            "maintenance.auto",
        ),
        *("advice.detachedhead", "commit.gpgsign", "tag.gpgsign", "receive.denycurrentbranch", "lfs.repositoryformatversion"),
        *(
            "color.ui",
            "rerere.enabled",
            "status.showuntrackedfiles",
            "diff.algorithm",
            "log.date",
            "pack.threads",
            "index.version",
        ),
    }
)
"""Settings that name no program. `*` matches the part between the first and the last dot."""


class RepositoryWatch:
    """Make it before a command; call `quarantine_changes` when every process that the command started has ended."""

    def __init__(self, workspace: str, needs: protected_paths.GitPaths) -> None:
        self._workspace = workspace
        self._known = frozenset({*needs.fixed, *needs.writable})
        self._unwanted = needs.unwanted
        self._index = needs.index
        self._configurations = {path: _Configuration(path) for path in needs.fixed if path.endswith(_CONFIGURATIONS)}
        self._link = _read_link(f"{workspace}/.git")
        self._since = time.time() - _CLOCKS_DIFFER

    def quarantine_changes(self) -> list[str]:
        """Renames what the command has made, and returns the paths that were renamed."""
        renamed: list[str] = []
        with suppress(OSError):
            for path in self._unwanted:
                if os.path.lexists(path):
                    renamed += self._rename_aside(PurePosixPath(path).relative_to(self._workspace))
            for path, before in self._configurations.items():
                with suppress(OSError, ValueError):
                    renamed += self._compare(PurePosixPath(path).relative_to(self._workspace), before)
            for folder in self._iterate_candidates():
                with suppress(OSError):
                    renamed += self._inspect_folder(folder)
        return renamed

    def _compare(self, path: PurePosixPath, before: "_Configuration") -> list[str]:
        """Compares a configuration that was mounted read-only. When git has replaced the file from outside meanwhile, the mount
        over it was gone from then on; later settings that are not known to be harmless cannot be distinguished from what the
        command wrote.
        """
        with _open_folder(self._workspace, path.parent) as folder:
            found = _read_status(path.name, folder)
            if found is None or found.st_ino == before.inode:
                return []
            return self._rewrite_harmless(path.name, folder, path.parent, before.parse_settings())

    def _iterate_candidates(self) -> Iterator[PurePosixPath]:
        """Yields the folders of the workspace that may be repositories, relative to it: the topmost ones, and those that its
        index lists.
        """
        yield PurePosixPath()
        left = _MOST_FOLDERS
        level = [PurePosixPath()]
        for _ in range(_DEPTH):
            deeper: list[PurePosixPath] = []
            for folder in level:
                with suppress(OSError), os.scandir(Path(self._workspace, folder)) as entries:
                    for entry in entries:
                        if left > 0 and entry.name != ".git" and entry.is_dir(follow_symlinks=False):
                            left -= 1
                            deeper.append(folder / entry.name)
            yield from deeper
            level = deeper
        if self._index is not None:
            yield from _read_gitlinks(self._index)

    def _inspect_folder(self, folder: PurePosixPath) -> list[str]:
        """Inspects one folder: a repository in it, or one that it is itself. Git uses the second when the first does not
        exist.
        """
        path = f"{self._workspace}/{folder}"
        if not (os.path.lexists(f"{path}/.git") or os.path.lexists(f"{path}/HEAD")):
            return []
        renamed: list[str] = []
        with _open_folder(self._workspace, folder) as here:
            dot_git = _read_status(".git", here)
            if dot_git is not None and str(Path(self._workspace, folder, ".git")) not in self._known:
                if not folder.parts and self._link is not None:
                    renamed += self._restore_link()
                elif stat.S_ISDIR(dot_git.st_mode):
                    with _open_folder(self._workspace, folder / ".git") as git_dir:
                        renamed += self._disable_programs(git_dir, folder / ".git")
                elif self._is_new(dot_git):
                    # It is a link or a pointer to another place.
                    renamed += self._rename_aside(folder / ".git")
            if all(_read_status(name, here) is not None for name in ("HEAD", "objects", "refs")):
                renamed += self._disable_programs(here, folder)
        return renamed

    def _restore_link(self) -> list[str]:
        """Restores the link to the workspace's repository; a link cannot be mounted over."""
        dot_git = f"{self._workspace}/.git"
        if _read_link(dot_git) == self._link:
            return []
        renamed = self._rename_aside(PurePosixPath(".git"))
        Path(dot_git).symlink_to(self._link or "")
        return renamed

    def _disable_programs(self, git_dir: int, where: PurePosixPath) -> list[str]:
        renamed: list[str] = []
        for name in ("commondir", "config.worktree"):
            found = _read_status(name, git_dir)
            if found is not None and self._is_new(found):
                renamed.append(self._rename(name, git_dir, where))
        config = _read_status("config", git_dir)
        if config is not None and self._is_new(config):
            renamed += self._rewrite_harmless("config", git_dir, where)
        hooks = _read_status("hooks", git_dir)
        if hooks is not None and self._has_new_hooks(hooks, git_dir):
            renamed.append(self._rename("hooks", git_dir, where))
        return renamed

    def _rewrite_harmless(
        self, name: str, folder: int, where: PurePosixPath, known: frozenset[repository.GitSetting] = frozenset()
    ) -> list[str]:
        """Keeps the settings that are harmless or known in a configuration, and otherwise renames the whole file."""
        harmless = _select_harmless(name, folder, known)
        if harmless is None:
            return []
        renamed = self._rename(name, folder, where)
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
            stream.write(harmless)
        return [renamed]

    def _has_new_hooks(self, hooks: os.stat_result, git_dir: int) -> bool:
        if not stat.S_ISDIR(hooks.st_mode):
            return self._is_new(hooks)
        descriptor = os.open("hooks", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=git_dir)
        try:
            for name in os.listdir(descriptor):  # noqa: PTH208 - by a descriptor
                found = _read_status(name, descriptor)
                if not name.endswith(".sample") and found is not None and self._is_new(found):
                    return True
        finally:
            os.close(descriptor)
        return False

    def _is_new(self, found: os.stat_result) -> bool:
        """Compares the change time, which no program can set."""
        return found.st_ctime >= self._since

    def _rename_aside(self, path: PurePosixPath) -> list[str]:
        with _open_folder(self._workspace, path.parent) as folder:
            return [self._rename(path.name, folder, path.parent)]

    def _rename(self, name: str, folder: int, where: PurePosixPath) -> str:
        aside, number = f"{name}{ASIDE}", 1
        while _read_status(aside, folder) is not None:
            number += 1
            aside = f"{name}{ASIDE}-{number}"
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        return str(where / name)


class _Configuration:
    """A configuration as it was when a command started."""

    def __init__(self, path: str) -> None:
        self.inode: int | None = None
        self._content = b""
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as stream:
                self.inode = os.fstat(descriptor).st_ino
                self._content = stream.read(_MOST_CONFIGURATION)

    def parse_settings(self) -> frozenset[repository.GitSetting]:
        try:
            return frozenset(repository.parse_settings(self._content.decode(errors="surrogateescape")))
        except repository.InvalidGitConfig:
            return frozenset()


@contextmanager
def _open_folder(workspace: str, folder: PurePosixPath) -> Iterator[int]:
    """Opens a folder below the workspace without following a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(workspace, flags)
    try:
        for name in folder.parts:
            if name == "..":
                raise NotADirectoryError(f"`{folder}` leads out of the workspace")
            above, descriptor = descriptor, os.open(name, flags, dir_fd=descriptor)
            os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)


def _read_link(path: str) -> str | None:
    """Returns the target of a link; `None` for anything else."""
    try:
        return os.readlink(path)  # noqa: PTH115 - as it is written
    except OSError:
        return None


def _read_status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _select_harmless(name: str, folder: int, known: frozenset[repository.GitSetting]) -> str | None:
    """Returns the configuration without settings that are neither known nor harmless; `None` when nothing has to be removed."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        content = stream.read(_MOST_CONFIGURATION + 1)
    try:
        found = repository.parse_settings(content.decode(errors="surrogateescape"))
    except repository.InvalidGitConfig:
        return ""
    if len(content) > _MOST_CONFIGURATION:
        return ""
    kept = [setting for setting in found if setting.key in _HARMLESS or setting in known]
    return None if len(kept) == len(found) else repository.format_settings(kept)


def _read_gitlinks(index: str) -> Iterator[PurePosixPath]:
    """Yields the paths of submodules in an index; git runs itself in them. Almost no index has any, which is detected at once."""
    try:
        descriptor = os.open(index, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    found: list[PurePosixPath] = []
    with (
        os.fdopen(descriptor, "rb"),
        suppress(ValueError, OSError, IndexError),
        mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content,
    ):
        if content[:4] == b"DIRC" and content.find(_GITLINK) >= 0:
            found = _parse_gitlinks(content)
    yield from found


def _parse_gitlinks(content: mmap.mmap) -> list[PurePosixPath]:
    for hash_size in (20, 32):
        names = _parse_gitlinks_with(content, hash_size)
        if names is not None:
            return [PurePosixPath(os.fsdecode(name)) for name in names[:_MOST_GITLINKS]]
    return []


def _parse_gitlinks_with(content: mmap.mmap, hash_size: int) -> list[bytes] | None:
    """Returns `None` when the entries are invalid with hashes of this size."""
    cuts_names = int.from_bytes(content[4:8]) >= 4
    names: list[bytes] = []
    name = b""
    place = 12
    for _ in range(int.from_bytes(content[8:12])):
        mode = content[place + 24 : place + 28]
        if mode[2] not in (0x40, 0x81, 0xA0, 0xE0):  # not the mode of a folder, file, link or submodule
            return None
        flags_at = place + 40 + hash_size
        begin = flags_at + (4 if content[flags_at] & 0x40 else 2)
        kept = b""
        if cuts_names:
            begin, cut = _read_varint(content, begin)
            kept = name[: len(name) - cut]
        end = content.find(b"\0", begin)
        if end < 0:
            return None
        name = kept + content[begin:end]
        place = end + 1 if cuts_names else place + (end - place + 8) // 8 * 8
        if mode == _GITLINK:
            names.append(name)
    return names


def _read_varint(content: mmap.mmap, place: int) -> tuple[int, int]:
    """Returns a number of variable length, and the offset behind it."""
    byte = content[place]
    value = byte & 0x7F
    while byte & 0x80:
        place += 1
        byte = content[place]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return place + 1, value
