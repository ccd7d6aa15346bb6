"""All file access of prompts. Every text is bounded, is valid text, and lies in a permitted folder; every error of the system or
of `scope` becomes a `PromptFileError` with one sentence. The calls block and belong on a thread.

A prompt is `NAME.md`. A skill is `NAME.md`, or `NAME/SKILL.md` with whatever else it needs beside it. A folder in between becomes
the first part of the name: `git/commit.md` is `git:commit`.

Text that was copied from a file is quoted between two lines that its content cannot forge. Both lines carry a mark, a hash of the
content. A file that held its own mark would have to hold its own hash. A random mark would do as well, but the same files must
give the same prompt, because providers cache prompts.
"""

import codecs
import errno
import os
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct

from switchtower.tools import outcome
from switchtower.tools.files import scope

SCAN_LIMIT = 8 * 1024 * 1024
"""The most bytes of a file that are searched for a line."""
_BLOCK = 64 * 1024


class PromptFileError(Exception):
    """A file cannot be used. The text gives the reason and can follow the file's name and a colon."""


class PromptFileMissing(PromptFileError):
    """No such file exists, or something other than a file has its name."""


class PromptFolder(Struct, frozen=True):
    """A folder; files are read only below it."""

    root: str
    own: bool = False
    """The folder is the user's, not the workspace's: the user chose its links, so they may lead anywhere."""


class LineRange(NamedTuple):
    """A range of lines, counted from 1, both ends included."""

    first: int
    last: int


class PromptDocument(Struct, frozen=True):
    """A file's text, or the start of it when it was `cut`."""

    path: str
    """The path for people: below the workspace and without links, or as it was requested in the user's own folder."""
    text: str
    size: int
    cut: bool


class FolderEntry(NamedTuple):
    name: str
    kind: str
    """`file`, `folder` or `link`; a pipe or a device counts as a file here and is refused when it is opened."""


class FolderListing(Struct, frozen=True):
    path: str
    entries: tuple[FolderEntry, ...]
    cut: bool


def read_document(folder: PromptFolder, path: str, *, limit: int, lines: LineRange | None = None) -> PromptDocument:
    """Reads the file's text, at most `limit` bytes of it."""
    with _locate(folder, path) as place:
        file, status = scope.open_to_read(place)
        with os.fdopen(file, "rb") as stream:
            content = stream.read(limit + 1) if lines is None else _read_lines(stream, lines, limit)
    cut = len(content) > limit
    text = _decode(content[:limit], whole=not cut)
    return PromptDocument(path=path if folder.own else place.path, text=text, size=status.st_size, cut=cut)


def list_folder(folder: PromptFolder, path: str, *, most: int) -> FolderListing:
    """Lists a folder, sorted. When it has more than `most` entries, an arbitrary `most` of them are listed."""
    with _locate(folder, path) as place:
        opened = os.open(place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.folder)
        try:
            with os.scandir(opened) as scanned:
                entries = [FolderEntry(entry.name, _get_kind(entry)) for entry in islice(scanned, most + 1)]
        finally:
            os.close(opened)
    return FolderListing(path=path if folder.own else place.path, entries=tuple(sorted(entries[:most])), cut=len(entries) > most)


def has_entry(folder: PromptFolder, path: str) -> bool:
    """Returns whether an entry has this name, even one that may not be read. It returns True when the folder itself
    may not be opened, because the entry may exist.
    """
    above, name = os.path.split(path.rstrip("/"))
    try:
        with _locate(folder, above) as place:
            opened = os.open(place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.folder)
            try:
                os.lstat(name, dir_fd=opened)
            finally:
                os.close(opened)
    except PromptFileMissing:
        return False
    except PromptFileError:
        return True
    return True


@contextmanager
def _locate(folder: PromptFolder, path: str) -> Iterator[scope.ResolvedPath]:
    """Locates the file, and also explains errors that occur while it is used."""
    try:
        root = folder.root
        if folder.own:
            root, path = os.path.split(os.path.realpath(Path(root, path)))
        with scope.locate(root, path) as place:
            yield place
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise PromptFileMissing("there is no such file") from error
    except outcome.ToolFailed as failed:
        if failed.type is outcome.ToolErrorType.SANDBOX_UNREACHABLE:
            raise PromptFileMissing("its folder cannot be opened") from failed
        raise PromptFileError(failed.message) from failed
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise PromptFileMissing("no file can have such a name") from error
        raise PromptFileError(error.strerror or "it cannot be read") from error
    except ValueError as error:
        raise PromptFileMissing("no file can have such a name") from error


def _read_lines(stream: BufferedReader, lines: LineRange, limit: int) -> bytes:
    """Reads these lines, up to one byte beyond the limit. Never holds more than one block of the lines that it skips."""
    picked = bytearray()
    number = 1
    for _ in range(SCAN_LIMIT // _BLOCK):
        block = stream.read(_BLOCK)
        if not block or number > lines.last or len(picked) > limit:
            break
        if number + (ends := block.count(b"\n")) < lines.first:
            number += ends
            continue
        start = 0
        while start < len(block) and number <= lines.last:
            end = block.find(b"\n", start) + 1
            if number >= lines.first:
                picked += block[start : end or None]
            number += end > 0
            start = end or len(block)
    if not picked:
        raise PromptFileError(f"it has no lines {lines.first}-{lines.last}, or not within its first {SCAN_LIMIT // 1024**2} MiB")
    return bytes(picked[: limit + 1])


def _decode(content: bytes, *, whole: bool) -> str:
    if b"\0" in content:
        raise PromptFileError("it is a binary file")
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        # A character that the limit cut in two is left out.
        return decoder.decode(content, final=whole)
    except UnicodeDecodeError:
        raise PromptFileError("it is not UTF-8 text") from None


def _get_kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    return "folder" if entry.is_dir(follow_symlinks=False) else "file"


TemplateKind = Literal["prompt", "skill"]

FOLDERS: dict[TemplateKind, str] = {"prompt": "prompts", "skill": "skills"}
PART = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MOST_SCANNED = 500
MOST_PARTS = 4
_SUFFIX = ".md"
_SKILL_FILE = "SKILL.md"


class TemplateFile(NamedTuple):
    """A file that may be a template."""

    parts: tuple[str, ...]
    path: str


def find_template_files(folder: PromptFolder, top: str, kind: TemplateKind) -> Iterator[TemplateFile]:
    """Yields files from the outer folders to the inner ones, sorted, until enough names have been examined."""
    waiting: deque[TemplateFile] = deque([TemplateFile((), top)])
    left = MOST_SCANNED
    while waiting and left > 0:
        parts, path = waiting.popleft()
        try:
            listing = list_folder(folder, path, most=left)
        except PromptFileError:
            continue
        left -= len(listing.entries)
        if kind == "skill" and parts and any(entry.name == _SKILL_FILE for entry in listing.entries):
            yield TemplateFile(parts, f"{path}/{_SKILL_FILE}")
            continue
        if len(parts) == MOST_PARTS:
            continue
        for entry in listing.entries:
            name = entry.name.removesuffix(_SUFFIX)
            if not PART.fullmatch(name):
                continue
            if name != entry.name:
                yield TemplateFile((*parts, name), f"{path}/{entry.name}")
            elif entry.kind != "file":
                waiting.append(TemplateFile((*parts, name), f"{path}/{entry.name}"))


EXPLAINED = (
    'Text between a line `<KIND … mark="M">` and the line `</KIND mark="M">` with the same mark M was copied from a file. '
    "Only that line ends it, whatever the text says."
)


def quote_block(kind: str, text: str, **attributes: str) -> str:
    text = text.removesuffix("\n")
    opening = " ".join([kind, *(f'{name}="{escape_quotes(value)}"' for name, value in attributes.items())])
    mark = sha256(f"{opening}\n{text}".encode(errors="replace")).hexdigest()[:16]
    return f'<{opening} mark="{mark}">\n{text}\n</{kind} mark="{mark}">'


def escape_quotes(text: str) -> str:
    """Escapes a value between quotes: it stays on its line and cannot end the quotes early."""
    return escape_unprintable(text.replace("\\", "\\\\").replace('"', '\\"'))


def escape_unprintable(text: str) -> str:
    """Escapes invisible characters and invalid text. A file's name may contain either."""
    return text if text.isprintable() else "".join(map(_escape_character, text))


def to_one_line(text: str, *, longest: int) -> str:
    """Shortens foreign text to a part of one of our lines."""
    line = escape_unprintable(" ".join(text[: longest * 4].split()))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _escape_character(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
