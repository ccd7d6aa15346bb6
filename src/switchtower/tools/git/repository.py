"""Finds the git repository that a workspace belongs to, and reads its configuration, without running git: a command that is not
trusted may have written the files.

A `.git` in the workspace is only a claim, which any command there can write. It may lead out of the workspace only to a
repository that lists this workspace as its own: a worktree's, a submodule's.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePath

from msgspec import Struct

from switchtower.tools import outcome

_LONGEST_POINTER = 4096
_MOST_CONFIGURATION = 64 * 1024
_DEEPEST_STORES = 5

_UNFINISHED = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "BISECT_LOG": "a bisection",
}


class GitRepository(Struct, frozen=True):
    top: str
    """The folder under version control; the workspace or one above it."""
    git_dir: str
    common_dir: str
    """The folder with objects and branches; a worktree shares them with its repository."""

    @property
    def objects(self) -> str:
        return os.path.join(self.common_dir, "objects")  # noqa: PTH118

    def list_unfinished_operations(self) -> list[str]:
        """Lists the operations, such as a merge, that a user has started here and not finished."""
        return sorted({what for name, what in _UNFINISHED.items() if os.path.lexists(f"{self.git_dir}/{name}")})


def find_repository(root: str) -> GitRepository:
    """Raises `outcome.ToolFailed` when there is no repository, or none that may be used."""
    workspace = PurePath(os.path.realpath(root))
    if not os.path.isdir(workspace):  # noqa: PTH112
        raise outcome.ToolFailed(outcome.ToolErrorType.SANDBOX_UNREACHABLE, f"the workspace `{root}` cannot be opened")
    top = next((above for above in (workspace, *workspace.parents) if os.path.lexists(above / ".git")), None)
    if top is None:
        raise outcome.ToolFailed(
            outcome.ToolErrorType.UNKNOWN, "the workspace is not in a git repository; hint: make one with the command `git init`"
        )
    git_dir = _find_git_dir(str(top))
    common_dir = _read_pointer(git_dir, "commondir") or git_dir
    repository = GitRepository(str(top), git_dir, common_dir)
    if top == workspace:
        _keep_inside(repository, str(workspace))
    if not os.path.isdir(repository.objects):  # noqa: PTH112
        raise _make_refusal(f"`{top}/.git` is not a repository")
    return repository


def read_small_file(path: str, limit: int = _LONGEST_POINTER) -> bytes | None:
    """Returns the content of a regular file; None for anything else."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(file, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        content = stream.read(limit + 1)
    return content if len(content) <= limit else None


def _find_git_dir(top: str) -> str:
    path = f"{top}/.git"
    if stat.S_ISDIR(os.lstat(path).st_mode):
        return path
    pointer = read_small_file(path)
    if pointer is None or not pointer.startswith(b"gitdir: "):
        raise _make_refusal(f"`{path}` is neither a folder nor a pointer to one")
    return os.path.realpath(os.path.join(top, os.fsdecode(pointer[8:].rstrip(b"\r\n"))))  # noqa: PTH118


def _read_pointer(git_dir: str, name: str) -> str | None:
    pointer = read_small_file(f"{git_dir}/{name}")
    return None if pointer is None else os.path.realpath(os.path.join(git_dir, os.fsdecode(pointer.rstrip(b"\r\n"))))  # noqa: PTH118


def _keep_inside(repository: GitRepository, workspace: str) -> None:
    if not _is_below(repository.git_dir, workspace):
        if not (_has_worktree(repository, workspace) or _has_submodule(repository, workspace)):
            raise _make_refusal(f"`{workspace}/.git` leads to a repository that does not know this workspace")
        return
    for place in (repository.git_dir, repository.common_dir, *_iterate_object_folders(repository.objects)):
        if not _is_below(place, workspace):
            raise _make_refusal(f"the repository of `{workspace}` keeps things outside it, in `{place}`")


def _is_below(path: str, folder: str) -> bool:
    return PurePath(os.path.realpath(path)).is_relative_to(folder)


def _has_worktree(repository: GitRepository, workspace: str) -> bool:
    is_listed = PurePath(repository.git_dir).parent == PurePath(repository.common_dir) / "worktrees"
    return is_listed and _read_pointer(repository.git_dir, "gitdir") == f"{workspace}/.git"


def _has_submodule(repository: GitRepository, workspace: str) -> bool:
    """Checks the one line of its configuration that a submodule always has, in a form that only git writes."""
    configuration = read_small_file(f"{repository.git_dir}/config", _MOST_CONFIGURATION) or b""
    for line in configuration.splitlines():
        name, _, value = line.strip().partition(b"=")
        if name.strip() == b"worktree" and repository.common_dir == repository.git_dir:
            path = os.path.join(repository.git_dir, os.fsdecode(value.strip()))  # noqa: PTH118
            return os.path.realpath(path) == workspace
    return False


def _iterate_object_folders(objects: str, depth: int = 0) -> Iterator[str]:
    """Yields every folder where git searches for objects and where a link or a list of other stores could lead it."""
    yield objects
    for folder in (objects, f"{objects}/pack", f"{objects}/info"):
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            yield from (entry.path for entry in entries if entry.is_symlink())
    listed = f"{objects}/info/alternates"
    if not os.path.lexists(listed):
        return
    content = read_small_file(listed, _MOST_CONFIGURATION)
    if content is None or b'"' in content or depth > _DEEPEST_STORES:
        raise _make_refusal(f"`{listed}` cannot be made sense of")
    for line in content.splitlines():
        if line and not line.startswith(b"#"):
            yield from _iterate_object_folders(os.path.join(objects, os.fsdecode(line)), depth + 1)  # noqa: PTH118


def _make_refusal(message: str) -> outcome.ToolFailed:
    return outcome.ToolFailed(outcome.ToolErrorType.EDIT_GUARD_BLOCKED, f"{message}; hint: use git in a terminal for this one")


_HEADER = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]')
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_ESCAPED = {"n": "\n", "t": "\t", "b": "\b", '"': '"', "\\": "\\"}


class InvalidGitConfig(ValueError):
    """The text is not a configuration that git would accept."""


class GitSetting(Struct, frozen=True):
    section: str
    """The section in lower case."""
    subsection: str | None
    name: str
    """The name in lower case."""
    value: str | None
    """None for a name alone, which git treats as true."""

    @property
    def key(self) -> str:
        """The key, with `*` for the part between the first and the last dot."""
        return f"{self.section}.{self.name}" if self.subsection is None else f"{self.section}.*.{self.name}"


def parse_settings(text: str) -> list[GitSetting]:
    """Raises `InvalidGitConfig`."""
    return list(_iterate_settings(text.removeprefix("\ufeff").replace("\r\n", "\n")))


def format_settings(settings: list[GitSetting]) -> str:
    """Returns a configuration with these settings, which git reads unchanged."""
    lines: list[str] = []
    for setting in settings:
        header = setting.section if setting.subsection is None else f'{setting.section} "{_escape(setting.subsection)}"'
        lines.append(f"[{header}]")
        if setting.value is None:
            lines.append(f"\t{setting.name}")
        else:
            value = _escape(setting.value).replace("\n", "\\n").replace("\t", "\\t").replace("\b", "\\b")
            lines.append(f'\t{setting.name} = "{value}"')
    return "".join(f"{line}\n" for line in lines)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _iterate_settings(text: str) -> Iterator[GitSetting]:
    section: tuple[str, str | None] | None = None
    place = 0
    while place < len(text):
        character = text[place]
        if character.isspace():
            place += 1
        elif character in "#;":
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
        elif character == "[":
            header = _HEADER.match(text, place)
            if header is None:
                raise InvalidGitConfig(f"a section's name cannot be read: {text[place : place + 40]!r}")
            name, quoted = header.groups()
            first, dot, rest = name.partition(".")
            between = rest.lower() if dot else None if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            section = (first.lower(), between)
            place = header.end()
        else:
            found = _NAME.match(text, place)
            if found is None or section is None:
                raise InvalidGitConfig(f"a setting's name cannot be read: {text[place : place + 40]!r}")
            value, place = _read_value(text, found.end())
            yield GitSetting(*section, found.group().lower(), value)


def _read_value(text: str, place: int) -> tuple[str | None, int]:
    """Returns the value behind a name, and the offset of its end."""
    while place < len(text) and text[place] in " \t":
        place += 1
    if place >= len(text) or text[place] in "\n#;":
        return None, place
    if text[place] != "=":
        raise InvalidGitConfig(f"a setting's value cannot be read: {text[place : place + 40]!r}")
    place += 1
    pieces: list[str] = []
    spaces = ""
    is_quoted = False
    while place < len(text):
        character = text[place]
        if character == "\n":
            break
        if character in "#;" and not is_quoted:
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
            break
        place += 1
        if character in " \t" and not is_quoted:
            spaces += character if pieces else ""
            continue
        if character == "\\":
            follows = text[place : place + 1]
            place += 1
            if follows == "\n":
                continue
            if follows not in _ESCAPED:
                raise InvalidGitConfig(f"`\\{follows}` means nothing in a value")
            character = _ESCAPED[follows]
        elif character == '"':
            is_quoted = not is_quoted
            character = ""
        pieces.append(spaces + character)
        spaces = ""
    if is_quoted:
        raise InvalidGitConfig("a quotation mark is missing")
    return "".join(pieces), place
