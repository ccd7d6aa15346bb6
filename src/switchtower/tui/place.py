"""The folder that a session works in: its branches and the names of its files, for completion. Reads names, runs no program.

What is read is bounded, in files and in time: a home folder is a workspace too.
"""

import os
import time
from pathlib import Path

from switchtower.client import errors, workspace
from switchtower.protocols.push import messages

MOST_FILES = 20_000
MOST_SECONDS = 2.0
_SKIPPED = frozenset(
    {"node_modules", "vendor", "__pycache__", "target", "dist", "build", "venv", "site-packages", "bower_components", "coverage"}
)


def resolve_folder(folder: str | Path) -> str:
    """The folder's whole name. Raises `ClientError` where it is none that a session can have."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise errors.ClientError(f"`{path}` is no folder", hint="give one that exists")
    root = str(path.resolve())
    try:
        root.encode()
    except UnicodeEncodeError:
        raise errors.ClientError(f"the folder's name is not UTF-8: {root!a}", hint="give another") from None
    return root


def describe_workspace(root: str) -> messages.Repo:
    """As `start_session` wants it."""
    return workspace.describe_repo(Path(root))


def list_files(root: str, *, most: int = MOST_FILES) -> list[str]:
    """Names of files and folders below it, as mentions spell them: near ones first, hidden folders and built things left out."""
    found: list[str] = []
    deadline = time.monotonic() + MOST_SECONDS
    level = [""]
    while level and len(found) < most and time.monotonic() < deadline:
        deeper: list[str] = []
        for folder in level:
            if len(found) >= most or time.monotonic() > deadline:
                break
            for name, is_folder in _list_entries(f"{root}/{folder}"):
                path = f"{folder}{name}"
                if is_folder:
                    deeper.append(f"{path}/")
                    path += "/"
                found.append(path)
        level = deeper
    return found[:most]


def _list_entries(folder: str) -> list[tuple[str, bool]]:
    entries: list[tuple[str, bool]] = []
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and (entry.name in _SKIPPED or entry.name.startswith(".")):
                    continue
                if entry.name.isprintable():
                    entries.append((entry.name, is_folder))
    except OSError:
        return []
    return sorted(entries)
