"""The paths outside a workspace that git needs, and the paths inside it that make git run programs. A sandbox opens the former
and protects the latter. This module reads files and never runs git: a command that is not trusted may have written them.

Git runs the programs that a repository's configuration and hooks name, for each user who calls it there. So a sandboxed command
may write objects, references and the index, and none of the files that decide which programs run. Existing ones are mounted
read-only. For missing ones a `Placeholder` is created while the command runs: a mount needs a file as its target.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from switchtower.tools import outcome
from switchtower.tools.git import repository

_WRITTEN_BY_COMMITS = ("objects", "refs", "logs", "reftable", "lfs")
_DECIDE = ("config", "config.worktree", "commondir", "hooks", "info", "modules", "worktrees")
"""Entries of a git folder that name programs to run, or other places for such names."""
_MOST_PARTS = 16
"""The most submodules and worktrees that can be committed in. The others can be read."""
_MOST_CONFIGURATION = 256 * 1024
_DEEPEST_INCLUDES = 5
_DEEPEST_MODULES = 6


class Placeholder(Struct, frozen=True):
    path: str
    content: bytes | None
    """None for a folder."""


class GitPaths(Struct, frozen=True):
    """Absolute paths without links."""

    readable: tuple[str, ...] = ()
    """Paths outside the workspace that git needs in order to work."""
    writable: tuple[str, ...] = ()
    """Paths that a commit writes, and folders that must not be renamed. They may lie below the readable and the fixed ones."""
    fixed: tuple[str, ...] = ()
    """Paths that can be read and not changed: a command that writes here decides which programs git runs for other users of the
    repository.
    """
    placeholders: tuple[Placeholder, ...] = ()
    """Entries that must exist before the fixed paths can be mounted, and as long as they are. Each is among the fixed paths."""
    unwanted: tuple[str, ...] = ()
    """Paths among the workspace's own files that git would read settings or hooks from if they existed."""
    index: str | None = None
    """The file that lists the files under version control, including submodules."""


PLACEHOLDER_COMMONDIR = b".\n"
"""Git rejects an empty `commondir`; this content equals git's default."""


def _make_placeholder(path: Path) -> Placeholder:
    match path.name:
        case "commondir":
            return Placeholder(str(path), PLACEHOLDER_COMMONDIR)
        case "config" | "config.worktree" | "gitdir":
            return Placeholder(str(path), b"")
        case _:
            return Placeholder(str(path), None)


def _is_placeholder(one: Placeholder) -> bool:
    """Returns whether it already exists: another command may need it as well, or a killed daemon has left it."""
    if one.content is not None:
        return repository.read_small_file(one.path) == one.content
    try:
        with os.scandir(one.path) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def find_git_paths(workspace: str) -> GitPaths:
    """`workspace` must be a real path."""
    dot_git = Path(workspace, ".git")
    if dot_git.is_symlink():
        # A link cannot be a mount target. Its target inside the workspace is protected; the link is checked afterwards.
        target = Path(os.path.realpath(dot_git))
        return _find_repository_paths(target, workspace) if _is_below(target, workspace) and target.is_dir() else GitPaths()
    if dot_git.is_dir():
        return _find_repository_paths(dot_git, workspace)
    if dot_git.is_file():
        return _find_worktree_paths(dot_git)
    return _find_subfolder_paths(workspace)


class _GitPathCollector:
    """Collects the paths to mount."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self.writable: dict[str, None] = {}
        self.fixed: dict[str, None] = {}
        self.placeholders: dict[str, Placeholder] = {}
        self.unwanted: dict[str, None] = {}

    def make_writable(self, folder: Path) -> None:
        """Lets commands write there. A mount cannot be renamed or removed; its parents are mounts as well."""
        self.writable[str(folder)] = None

    def protect(self, path: Path) -> None:
        """Makes the path read-only, and plans a placeholder where nothing exists."""
        placeholder = _make_placeholder(path)
        if not path.exists() or _is_placeholder(placeholder):
            self.placeholders[str(path)] = placeholder
        self.fixed[str(path)] = None

    def protect_inside(self, path: Path) -> None:
        """Makes an existing path of the workspace's own files read-only, with all folders above it, which could be renamed
        otherwise.
        """
        if not _is_below(path, self._workspace):
            return
        if not path.exists():
            self.unwanted[str(path)] = None
            return
        for above in path.parents:
            if str(above) == self._workspace:
                break
            self.make_writable(above)
        self.protect(path)

    def collect_paths(self, git_dir: Path) -> GitPaths:
        return GitPaths(
            index=str(git_dir / "index"),
            writable=tuple(path for path in self.writable if path not in self.fixed),
            fixed=tuple(self.fixed),
            placeholders=tuple(self.placeholders.values()),
            unwanted=tuple(self.unwanted),
        )


def _find_repository_paths(git_dir: Path, workspace: str) -> GitPaths:
    protection = _GitPathCollector(workspace)
    links = [git_dir / name for name in _DECIDE if (git_dir / name).is_symlink()]
    if links or not os.access(git_dir, os.W_OK):
        # A link cannot be a mount target, and could be replaced: nothing can be written there.
        protection.protect(git_dir)
        for link in links:
            protection.protect_inside(Path(os.path.realpath(link)))
        return protection.collect_paths(git_dir)
    protection.make_writable(git_dir)
    for name in _DECIDE:
        protection.protect(git_dir / name)
    parts = [*_iterate_submodules(git_dir / "modules"), *_iterate_worktrees(git_dir / "worktrees")]
    for part in parts[:_MOST_PARTS]:
        is_linked = any((part.git_dir / name).is_symlink() for name in part.decide)
        if os.access(part.git_dir, os.W_OK) and _is_below(part.pointer, workspace) and not is_linked:
            protection.make_writable(part.git_dir)
            for name in part.decide:
                protection.protect(part.git_dir / name)
    for part in parts:
        protection.protect_inside(part.pointer)
    for path in _iterate_configured_paths(git_dir, workspace):
        protection.protect_inside(path)
    return protection.collect_paths(git_dir)


class _RepositoryPart(Struct, frozen=True):
    """A submodule or a worktree, whose own git folder lies in the repository's."""

    git_dir: Path
    pointer: Path
    """The file `.git` in its own folder, which leads to `git_dir`."""
    decide: tuple[str, ...]


def _iterate_submodules(modules: Path, depth: int = 0) -> Iterator[_RepositoryPart]:
    for folder in _list_folders(modules):
        if (folder / "HEAD").is_file():
            found = [setting.value for setting in _read_settings(folder / "config") if setting.key == "core.worktree"]
            if found and found[-1]:
                pointer = Path(os.path.realpath(folder / found[-1]), ".git")
                if pointer.is_file() and not pointer.is_symlink():
                    yield _RepositoryPart(folder, pointer, _DECIDE)
            yield from _iterate_submodules(folder / "modules", depth + 1)
        elif depth < _DEEPEST_MODULES:
            yield from _iterate_submodules(folder, depth + 1)  # a submodule's name may have slashes


def _iterate_worktrees(worktrees: Path) -> Iterator[_RepositoryPart]:
    for folder in _list_folders(worktrees):
        written = repository.read_small_file(str(folder / "gitdir"))
        if written is not None:
            pointer = Path(os.path.realpath(folder / os.fsdecode(written.rstrip(b"\r\n"))))
            if pointer.is_file():
                yield _RepositoryPart(folder, pointer, ("commondir", "gitdir", "config.worktree", "modules"))


def _iterate_configured_paths(git_dir: Path, workspace: str) -> Iterator[Path]:
    """Yields files of the workspace that the configuration includes, and its folders that the configuration uses for hooks."""
    for start in (git_dir / "config", git_dir / "config.worktree", *_list_user_files()):
        for file, setting in _iterate_settings(start):
            if setting.key == "core.hookspath" and setting.value:
                yield _resolve(setting.value, Path(workspace))
            elif _is_include(setting):
                yield _resolve(setting.value or "", file.parent)


def _list_user_files() -> tuple[Path, ...]:
    home = os.environ.get("HOME", "")
    return (Path(home, ".gitconfig"), Path(os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "git/config")) if home else ()


def _iterate_settings(file: Path, depth: int = 0) -> Iterator[tuple[Path, repository.GitSetting]]:
    """Yields each setting, with the file that has it."""
    for setting in _read_settings(file):
        yield file, setting
        if _is_include(setting) and depth < _DEEPEST_INCLUDES:
            yield from _iterate_settings(_resolve(setting.value or "", file.parent), depth + 1)


def _is_include(setting: repository.GitSetting) -> bool:
    return setting.name == "path" and setting.section in ("include", "includeif") and bool(setting.value)


def _resolve(path: str, start: Path) -> Path:
    return Path(os.path.realpath(start / os.path.expanduser(path)))  # noqa: PTH111 - a name that is no user's stays as it is


def _read_settings(file: Path) -> list[repository.GitSetting]:
    content = repository.read_small_file(str(file), _MOST_CONFIGURATION) or b""
    try:
        return repository.parse_settings(content.decode(errors="surrogateescape"))
    except repository.InvalidGitConfig:
        return []  # git reads nothing from it either


def _list_folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _find_worktree_paths(dot_git: Path) -> GitPaths:
    """Returns the worktree's own part of the repository, and of the shared part only the paths that a commit writes."""
    workspace = dot_git.parent
    try:
        # Only a repository that lists this workspace is found: a forged pointer could otherwise open another user's repository.
        found = repository.find_repository(str(workspace))
    except outcome.ToolFailed:
        return GitPaths(fixed=(str(dot_git),))
    git_dir, common_dir = Path(found.git_dir), Path(found.common_dir)
    if git_dir.is_relative_to(workspace) or common_dir.is_relative_to(workspace) or git_dir.parent != common_dir / "worktrees":
        return GitPaths(fixed=(str(dot_git),))
    protection = _GitPathCollector(str(workspace))
    protection.protect(dot_git)
    if os.access(git_dir, os.W_OK):
        protection.make_writable(git_dir)
        for name in ("commondir", "gitdir", "config.worktree", "modules"):
            protection.protect(git_dir / name)
    for path in _iterate_configured_paths(common_dir, str(workspace)):
        protection.protect_inside(path)
    collected = protection.collect_paths(git_dir)
    return GitPaths(
        readable=(str(common_dir),),
        writable=(*_keep_existing(common_dir, *_WRITTEN_BY_COMMITS), *collected.writable),
        fixed=collected.fixed,
        placeholders=collected.placeholders,
        unwanted=collected.unwanted,
        index=collected.index,
    )


def _find_subfolder_paths(workspace: str) -> GitPaths:
    """Returns the paths of a workspace in the middle of a repository, which lies outside it and can be read there. No file inside
    the workspace determines its place.
    """
    try:
        found = repository.find_repository(workspace)
    except outcome.ToolFailed:
        return GitPaths()
    return GitPaths(readable=(found.top, found.common_dir))


def _keep_existing(folder: Path, *names: str) -> tuple[str, ...]:
    """Returns the names that exist. A link could lead anywhere, so it does not count."""
    return tuple(str(folder / name) for name in names if (folder / name).exists() and not (folder / name).is_symlink())


def _is_below(path: Path, folder: str) -> bool:
    return path.is_relative_to(folder) and str(path) != folder
