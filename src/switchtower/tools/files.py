"""Looking at and writing the workspace's files. Everything goes through `scope`; these calls block and belong on a thread.

Reads are bounded and say when they stop short. A write appears whole or not at all: it goes into a file beside its
target, reaches the disk, and then takes the target's name.
"""

import codecs
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from switchtower.tools import outcome, scope

READ_LIMIT = 256 * 1024
LIST_LIMIT = 1000


def list_dir(root: str, path: str) -> str:
    """One name a line, sorted, folders with a slash and links with an `@` behind them."""
    with _explained(path, outcome.ErrorType.UNKNOWN), scope.locate(root, path) as place:
        folder = os.open(place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.folder)
        try:
            with os.scandir(folder) as entries:
                names = sorted(_marked_name(entry) for entry in entries)
        finally:
            os.close(folder)
    if not names:
        return "[empty folder]"
    if len(names) > LIST_LIMIT:
        names[LIST_LIMIT:] = [f"[… {len(names) - LIST_LIMIT} more not shown …]"]
    return "\n".join(names)


def read_file(root: str, path: str, *, offset: int = 0) -> str:
    """The text of a file from a byte offset on, as far as the limit goes."""
    with _explained(path, outcome.ErrorType.UNKNOWN), scope.locate(root, path) as place:
        file, status = scope.open_to_read(place)
        with os.fdopen(file, "rb") as stream:
            stream.seek(offset)
            content = stream.read(READ_LIMIT)
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        # A character that the limit cut in two is left for the next read.
        text = decoder.decode(content, final=offset + len(content) >= status.st_size)
    except UnicodeDecodeError:
        return f"[`{path}` is not UTF-8 text; {status.st_size} bytes, not shown]"
    if "\0" in text:
        return f"[`{path}` is a binary file; {status.st_size} bytes, not shown]"
    next_offset = offset + len(content) - len(decoder.getstate()[0])
    if next_offset < status.st_size:
        text += f"\n[… cut at {next_offset} of {status.st_size} bytes; read on with offset {next_offset} …]"
    return text


def write_file(root: str, path: str, content: str) -> str:
    with _explained(path, outcome.ErrorType.WRITE_FAILED):
        encoded = content.encode()
        with scope.locate(root, path, make_folders=True) as place:
            created = _replace(place, encoded)
    return f"{'created' if created else 'replaced'} `{place.path}` ({len(encoded)} bytes)"


def _replace(place: scope.Place, content: bytes) -> bool:
    try:
        former = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        former = None
    if former and stat.S_ISLNK(former.st_mode):
        raise scope.Refused(f"`{place.path}` changed into a link while it was written")
    if former and not stat.S_ISREG(former.st_mode):
        raise outcome.Failed(outcome.ErrorType.WRITE_FAILED, f"`{place.path}` is not a regular file")
    # Its own short name: the target's may already be as long as names can be.
    beside = f".tower-{secrets.token_hex(8)}.tmp"
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=place.folder)
    try:
        with os.fdopen(file, "wb") as stream:
            if former:
                _take_over(file, former)
            stream.write(content)
            stream.flush()
            os.fsync(file)
        os.rename(beside, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=place.folder)
        raise
    return former is None


def _take_over(file: int, former: os.stat_result) -> None:
    """Mode and owner stay as they were, as far as we may set them."""
    with suppress(PermissionError):
        os.fchown(file, former.st_uid, former.st_gid)
    os.fchmod(file, stat.S_IMODE(former.st_mode))


def _marked_name(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return f"{entry.name}@"
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


@contextmanager
def _explained(path: str, otherwise: outcome.ErrorType) -> Iterator[None]:
    """Turns the system's complaints into a tool's."""
    try:
        yield
    except FileNotFoundError as error:
        raise outcome.Failed(outcome.ErrorType.FILE_NOT_FOUND, f"`{path}` does not exist") from error
    except IsADirectoryError as error:
        raise outcome.Failed(otherwise, f"`{path}` is a folder") from error
    except NotADirectoryError as error:
        raise outcome.Failed(otherwise, f"`{path}` or a part of it is not a folder") from error
    except OSError as error:
        raise outcome.Failed(otherwise, f"`{path}`: {error.strerror}") from error
    except UnicodeEncodeError as error:
        raise outcome.Failed(otherwise, f"`{path}`: not valid Unicode text") from error
