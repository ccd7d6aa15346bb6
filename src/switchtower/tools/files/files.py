"""Reads and writes the workspace's files. Everything uses `scope`; these calls block and belong on a thread. Reads are bounded
and report when they are truncated.

For each session, the hash of the last content of each file that it saw is remembered. It guards a change against content that has
changed since. The memory is bounded and lost with the daemon; a forgotten file only loses the guard.

Stores outputs that are too long for a tool's result in files of the workspace, where a model can read the rest. They are
written through `scope`, bounded in number, and never make a tool fail.

A file is unnamed while it is written; it gets a name only when its content is worth keeping."""

import codecs
import hashlib
import heapq
import os
import re
import secrets
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct

from switchtower.tools import outcome, safe_text
from switchtower.tools.files import atomic_write, scope

_NOTE = re.compile(r"\[… (\d{1,18}) bytes left out …\]")
FOLDER = ".tower/outputs"
MAX_OUTPUT_FILES = 20

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
            too_many = [entry.name for entry in ours[MAX_OUTPUT_FILES - 1 :]]
    finally:
        os.close(listed)
    for name in too_many:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)


def _make_file_name(call_id: str) -> str:
    if _GOOD_NAME.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode(errors="replace")).hexdigest()[:16] if call_id else secrets.token_hex(8)


READ_LIMIT = 64 * 1024
LONGEST_READ = 256 * 1024
LIST_LIMIT = 1000
WHOLE_LIMIT = 16 * 1024 * 1024
"""The largest file that is read as a whole: to hash it, to edit it."""

KnownDigest = Callable[[str], str | None]
"""Returns the hash of the last content of a file that the session saw, by the file's path."""


class FileContent(Struct, frozen=True):
    """The result of a read. A file too large to be hashed has no digest."""

    path: str
    text: str
    digest: str | None


class WholeFile(Struct, frozen=True):
    """A whole file, and the status it had before it was read."""

    content: bytes
    status: os.stat_result


class WrittenFile(Struct, frozen=True):
    path: str
    text: str
    digest: str


def list_dir(root: str, path: str) -> str:
    """Lists one name a line, sorted; folders have a slash and links an `@` behind them."""
    count = 0

    def counted(entries: Iterator[os.DirEntry[str]]) -> Iterator[str]:
        nonlocal count
        for count, entry in enumerate(entries, start=1):  # noqa: B007 - the last number is wanted
            yield _format_name(entry)

    with translate_os_errors(path, outcome.ToolErrorType.UNKNOWN), scope.locate(root, path) as place:
        folder = scope.open_folder(place)
        try:
            with os.scandir(folder) as entries:
                names = heapq.nsmallest(LIST_LIMIT, counted(entries))
        finally:
            os.close(folder)
    if not names:
        return "[empty folder]"
    if count > LIST_LIMIT:
        names.append(f"[… {count - LIST_LIMIT} more not shown …]")
    return "\n".join(names)


def read_content(root: str, path: str, *, offset: int = 0, limit: int = READ_LIMIT) -> FileContent:
    """Returns the text of a file from a byte offset on, up to the limit."""
    with translate_os_errors(path, outcome.ToolErrorType.UNKNOWN), scope.locate(root, path) as place:
        file, status = scope.open_to_read(place)
        with os.fdopen(file, "rb") as stream:
            if status.st_size > WHOLE_LIMIT:
                stream.seek(offset)
                piece, size, digest = stream.read(limit), status.st_size, None
            else:
                whole = stream.read(WHOLE_LIMIT)
                piece, size, digest = whole[offset : offset + limit], len(whole), compute_digest(whole)
    return FileContent(place.path, _format_content(path, piece, offset=offset, size=size, digest=digest), digest)


def read_whole(place: scope.ResolvedPath) -> WholeFile:
    """Reads a whole file for callers that need all of it; refuses a file that is too large for that."""
    file, status = scope.open_to_read(place)
    with os.fdopen(file, "rb") as stream:
        content = stream.read(WHOLE_LIMIT + 1)
    if len(content) > WHOLE_LIMIT:
        message = f"`{place.path}` is larger than {WHOLE_LIMIT // 1024**2} MiB"
        raise outcome.ToolFailed(outcome.ToolErrorType.WRITE_FAILED, message)
    return WholeFile(content, status)


def write_content(
    root: str, path: str, content: str, *, known_digest: KnownDigest | None = None, permit: atomic_write.WritePermit | None = None
) -> WrittenFile:
    """Creates or replaces the file. Its current content must not differ from what the session saw of it."""
    with translate_os_errors(path, outcome.ToolErrorType.WRITE_FAILED):
        encoded = content.encode()
        with scope.locate(root, path, make_folders=True) as place:
            expected = _check_unchanged(place, known_digest(place.path)) if known_digest else None
            created = atomic_write.replace_file(place, encoded, permit=permit or atomic_write.WritePermit(), expected=expected)
    text = f"{'created' if created else 'replaced'} `{place.path}` ({len(encoded)} bytes)"
    return WrittenFile(place.path, text, compute_digest(encoded))


def _check_unchanged(place: scope.ResolvedPath, digest: str | None) -> os.stat_result | None:
    """Returns the status of a file that is still what the session saw. A file that the session never saw, or that was removed,
    needs no guard.
    """
    if digest is None:
        return None
    try:
        whole = read_whole(place)
    except FileNotFoundError:
        return None
    if compute_digest(whole.content) != digest:
        raise atomic_write.make_stale_error(place.path)
    return whole.status


def _format_content(path: str, piece: bytes, *, offset: int, size: int, digest: str | None) -> str:
    if offset and offset >= size:
        return f"[`{path}` ends at {size} bytes; there is nothing from offset {offset} on]"
    # At an offset into the middle of a character, the text starts with the next one.
    start = next((index for index in range(min(4, len(piece))) if piece[index] & 0xC0 != 0x80), 0) if offset else 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        # A character that the limit cut in two is left for the next read.
        text = decoder.decode(piece[start:], final=offset + len(piece) >= size)
    except UnicodeDecodeError:
        return f"[`{path}` is not UTF-8 text; {size} bytes, not shown]"
    if "\0" in text:
        return f"[`{path}` is a binary file; {size} bytes, not shown]"
    next_offset = offset + len(piece) - len(decoder.getstate()[0])
    if next_offset < size:
        # A model that saw only a part can name the whole by its hash when changing it.
        guard = f"; hash {digest[:SHORT]}" if digest else ""
        text += f"\n[… cut at {next_offset} of {size} bytes; read on with offset {next_offset}{guard} …]"
    return text


def _format_name(entry: os.DirEntry[str]) -> str:
    name = safe_text.escape_to_one_line(entry.name)
    if entry.is_symlink():
        return f"{name}@"
    return f"{name}/" if entry.is_dir(follow_symlinks=False) else name


@contextmanager
def translate_os_errors(path: str, otherwise: outcome.ToolErrorType) -> Iterator[None]:
    """Turns errors of the system into failures of a tool."""
    try:
        yield
    except FileNotFoundError as error:
        raise outcome.ToolFailed(outcome.ToolErrorType.FILE_NOT_FOUND, f"`{path}` does not exist") from error
    except IsADirectoryError as error:
        raise outcome.ToolFailed(otherwise, f"`{path}` is a folder") from error
    except NotADirectoryError as error:
        raise outcome.ToolFailed(otherwise, f"`{path}` or a part of it is not a folder") from error
    except OSError as error:
        raise outcome.ToolFailed(otherwise, f"`{path}`: {error.strerror}") from error
    except UnicodeEncodeError as error:
        raise outcome.ToolFailed(otherwise, f"`{path}`: not valid Unicode text") from error


MOST_FILES = 4096
SHORT = 12
"""The number of characters of a hash that a model is shown; no two versions of one file will share them by accident."""


def compute_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class KnownFiles:
    def __init__(self, most_files: int = MOST_FILES) -> None:
        self._digests: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        self._most_files = most_files
        self._lock = threading.Lock()

    def record(self, session: str, workspace: str, path: str, digest: str) -> None:
        """`path` is the file's own, links resolved: a file is the same by whatever name it was reached."""
        with self._lock:
            self._digests[session, workspace, path] = digest
            self._digests.move_to_end((session, workspace, path))
            if len(self._digests) > self._most_files:
                self._digests.popitem(last=False)

    def find_digest(self, session: str, workspace: str, path: str) -> str | None:
        with self._lock:
            return self._digests.get((session, workspace, path))
