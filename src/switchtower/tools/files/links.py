"""Resolves the paths of a call on disk, for calls that the policy allows by their text alone.

A link of the workspace can lead anywhere, and git treats any folder with `HEAD`, `objects` and `refs` as a repository whose
settings it obeys. A finding turns the permission into an approval request. The calls block; callers run them on a thread.
"""

import errno
import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from switchtower.core import policy
from switchtower.tools import outcome
from switchtower.tools.files import scope

_MOST_FILES = 1_000
_NO_SUCH_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP})
_CLASS = re.compile(r"\[[^\]]*\]")
_REPOSITORY = ("HEAD", "objects", "refs")


class _LinkQuestion(Exception):
    """The reason why the call needs an approval: a clause that starts with "it" or with a name."""


def find_question(root: str, tool: str, args: Mapping[str, Any]) -> str | None:
    """Returns the reason why a call that rules or a profile allow needs an approval anyway; None when there is none."""
    try:
        if tool in policy.COMMANDS:
            _check_command(root, args.get("command"))
        elif tool in policy.WRITES:
            _check_write(root, args.get("path"))
    except _LinkQuestion as found:
        return str(found)
    except (OSError, ValueError, outcome.ToolFailed) as error:
        return f"it names files that cannot be looked at ({type(error).__name__})"
    return None


def _check_command(root: str, command: object) -> None:
    if not isinstance(command, str):
        raise _LinkQuestion("it runs a command that is no text")
    named = policy.find_operands(command, root)
    for folder in named.folders:
        if folder and _is_a_repository(root, folder):
            raise _LinkQuestion(f"it runs in `{'/'.join(folder)}`, which git takes for a repository with its own settings")
    if _is_bare_repository(root) and not os.path.lexists(f"{root}/.git"):
        raise _LinkQuestion("it runs in a folder that git takes for a repository with its own settings")
    seen: dict[str, bool] = {}
    for text, is_wild in named.words:
        for folder in named.folders:
            if policy.locate_in_workspace(text, root, folder) is None:
                continue  # The rule names it explicitly.
            for path in _expand(root, folder, text, is_wild=is_wild):
                _check_path(root, path, seen)


def _check_write(root: str, path: object) -> None:
    parts = policy.locate_in_workspace(path, root) if isinstance(path, str) else None
    if parts is None:
        return  # The tool refuses it.
    _check_path(root, "/".join(parts), {})
    for depth in range(1, len(parts)):
        if _is_bare_repository("/".join((root, *parts[:depth]))):
            raise _LinkQuestion(f"`{'/'.join(parts)}` lies in a folder that git takes for a repository")


def _expand(root: str, folder: tuple[str, ...], text: str, *, is_wild: bool) -> Iterable[str]:
    """Yields the paths below the workspace that a word matches. A character class counts as any character."""
    path = text if not folder or text.startswith("/") else "/".join((*folder, text))
    return _expand_glob(root, text, path) if is_wild else (path,)


def _expand_glob(root: str, text: str, path: str) -> Iterator[str]:
    found = glob.iglob(_CLASS.sub("?", path), root_dir=root)  # noqa: PTH207
    for number, match in enumerate(islice(found, _MOST_FILES + 1)):
        if number == _MOST_FILES:
            raise _LinkQuestion(f"`{text[:60]}` stands for too many files to look at")
        yield match


def _check_path(root: str, path: str, seen: dict[str, bool]) -> None:
    """`seen` caches the checks of one decision: the words of a command often lie in the same folder."""
    if not _is_through_link(root, path, seen):
        return
    try:
        with scope.locate(root, path) as place:
            resolved = policy.locate_in_workspace(place.path)
    except scope.PathRefused:
        raise _LinkQuestion(
            f"`{path[:120]}` leads out of the workspace, or to a file that holds secrets, through a link"
        ) from None
    except OSError as error:
        if error.errno in _NO_SUCH_FILE:
            return
        raise
    if resolved is None or policy.is_protected(resolved):
        raise _LinkQuestion(f"`{path[:120]}` leads to `{place.path[:120]}` through a link")


def _is_through_link(root: str, path: str, seen: dict[str, bool]) -> bool:
    at = "" if path.startswith("/") else root
    if path.startswith(f"{root}/"):
        at, path = root, path.removeprefix(f"{root}/")
    for part in path.split("/"):
        at = f"{at}/{part}"
        exists = seen.get(at)
        if exists is None:
            try:
                status = os.lstat(at)
            except OSError as error:
                if error.errno in _NO_SUCH_FILE:
                    seen[at] = False
                    return False
                raise
            if stat.S_ISLNK(status.st_mode):
                return True
            seen[at] = exists = True
        if not exists:
            return False
    return False


def _is_a_repository(root: str, folder: tuple[str, ...]) -> bool:
    """Returns whether git, started in this folder, would find a bare repository before it finds an ordinary one."""
    for depth in range(len(folder), 0, -1):
        at = "/".join((root, *folder[:depth]))
        if os.path.lexists(f"{at}/.git"):
            return False
        if _is_bare_repository(at):
            return True
    return False


def _is_bare_repository(folder: str) -> bool:
    for name in _REPOSITORY:
        try:
            os.lstat(f"{folder}/{name}")
        except OSError as error:
            if error.errno in _NO_SUCH_FILE:
                return False
            raise
    return True
