"""Stores outputs that are too long for a tool's result in files of the workspace, where a model can read the rest. They are
written through `scope`, bounded in number, and never make a tool fail.

A file is unnamed while it is written; it gets a name only when its content is worth keeping.
"""

import hashlib
import os
import re
import secrets
import tempfile
from contextlib import suppress

from switchtower.tools import outcome
from switchtower.tools.files import scope

_NOTE = re.compile(r"\[… (\d{1,18}) bytes left out …\]")
FOLDER = ".tower/outputs"
MOST_FILES = 20

_GOOD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1024 * 1024


class OutputFile:
    def __init__(self, root: str, call_id: str) -> None:
        self._root = root
        self._name = f"{_make_file_name(call_id)}.txt"
        self.descriptor: int | None = None
        """The descriptor to write to; None when no file can be made."""
        with suppress(OSError, outcome.ToolFailed):
            self.descriptor = _open_unnamed_file(root)

    def publish(self) -> str | None:
        """Gives the file a name and returns its path. Returns None when that is impossible, for instance because `.tower` is not
        a folder.
        """
        if self.descriptor is None:
            return None
        try:
            folder = _open_folder(self._root)
            try:
                _hide_from_git(folder)
                _make_room(folder)
                with suppress(FileNotFoundError):
                    os.unlink(self._name, dir_fd=folder)
                _link_into(self.descriptor, folder, self._name)
            finally:
                os.close(folder)
        except (OSError, outcome.ToolFailed):
            return None
        return f"{FOLDER}/{self._name}"

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def __del__(self) -> None:
        # A thread opens this; its caller may be cancelled before it gets the file.
        self.close()


def add_output_path(text: str, total: int, spilled: int, kept: int, path: str | None) -> str:
    """Returns the text of a `safe_text.SpillingCapture` with the file's path added to the note about the omitted part."""
    if path is None:
        return text
    part = "the whole output is" if spilled == total else f"its first {spilled} bytes are"
    note = next((found for found in _NOTE.finditer(text) if total - kept <= int(found[1]) <= total), None)
    return text if note is None else f"{text[: note.end(1)]} bytes left out; {part} in `{path}` …]{text[note.end() :]}"


def _open_unnamed_file(root: str) -> int:
    with suppress(OSError, AttributeError), scope.locate(root, ".") as place:
        return os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=place.folder)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _open_folder(root: str) -> int:
    """Opens only the folder itself: the target of a link belongs to another owner, and old files here are removed."""
    with scope.locate(root, FOLDER, make_folders=True) as place:
        if place.path != FOLDER:
            raise scope.PathRefused(f"`{FOLDER}` is a link")
        with suppress(FileExistsError):
            os.mkdir(place.name, dir_fd=place.folder)
        return scope.open_folder(place)


def _link_into(file: int, folder: int, name: str) -> None:
    with suppress(OSError):
        os.link(f"/proc/self/fd/{file}", name, dst_dir_fd=folder, follow_symlinks=True)
        return
    # The folder is on another disk than the workspace, or the system cannot name an unnamed file.
    copy = os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
    try:
        os.lseek(file, 0, os.SEEK_SET)
        while chunk := os.read(file, _CHUNK):
            while chunk:
                chunk = chunk[os.write(copy, chunk) :]
    finally:
        os.close(copy)


def _hide_from_git(folder: int) -> None:
    with suppress(FileExistsError):
        file = os.open(".gitignore", _NEW_FILE, 0o666, dir_fd=folder)
        try:
            os.write(file, b"*\n")
        finally:
            os.close(file)


def _make_room(folder: int) -> None:
    """Removes the oldest files to make room for one more."""
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        with os.scandir(listed) as entries:
            ours = [entry for entry in entries if entry.name.endswith(".txt") and entry.is_file(follow_symlinks=False)]
            ours.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns, reverse=True)
            too_many = [entry.name for entry in ours[MOST_FILES - 1 :]]
    finally:
        os.close(listed)
    for name in too_many:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)


def _make_file_name(call_id: str) -> str:
    if _GOOD_NAME.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode(errors="replace")).hexdigest()[:16] if call_id else secrets.token_hex(8)
