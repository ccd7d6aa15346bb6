"""The one door from prompts to files. What comes through is bounded, is text, and lies where it may; every complaint of
the system or of `scope` becomes a `Trouble` with a sentence. These calls block and belong on a thread.

Where skills and prompts lie, and what their places call them. Looks at names only; no file is opened here.

A prompt is `NAME.md`. A skill is `NAME.md`, or `NAME/SKILL.md` with whatever else it needs beside it. A folder in between
becomes the first part of the name: `git/commit.md` is `git:commit`.

How text that was copied from a file stands in a prompt: between two lines that its content cannot write. Pure.

Both lines carry a mark, a hash of what stands between them. A file that held its own mark would have to hold its own hash.
A random mark would do as well, but the same files must give the same prompt: providers keep what they have seen before."""

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
"""How far into a file a line is looked for."""
_BLOCK = 64 * 1024


class PromptFileError(Exception):
    """A file cannot be used. The text says why and can stand behind its name and a colon."""


class PromptFileMissing(PromptFileError):
    """There is no such file, or something else has its name."""


class PromptFolder(Struct, frozen=True):
    """A folder that files are read below."""

    root: str
    own: bool = False
    """It is the user's, not the workspace's: a link in it is the user's word and may lead anywhere."""


class LineRange(NamedTuple):
    """A range of lines, counted from 1, both ends in it."""

    first: int
    last: int


class PromptDocument(Struct, frozen=True):
    """A file's text, or the beginning of it when it was `cut`."""

    path: str
    """For people: below the workspace and without links, or as it was asked for in the user's own folder."""
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
    """The file's text, at most `limit` bytes of it."""
    with _locate(folder, path) as place:
        file, status = scope.open_to_read(place)
        with os.fdopen(file, "rb") as stream:
            content = stream.read(limit + 1) if lines is None else _read_lines(stream, lines, limit)
    cut = len(content) > limit
    text = _decode(content[:limit], whole=not cut)
    return PromptDocument(path=path if folder.own else place.path, text=text, size=status.st_size, cut=cut)


def list_folder(folder: PromptFolder, path: str, *, most: int) -> FolderListing:
    """What is in a folder, sorted. Of one with more than `most` entries it is some `most` of them."""
    with _locate(folder, path) as place:
        opened = os.open(place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.folder)
        try:
            with os.scandir(opened) as scanned:
                entries = [FolderEntry(entry.name, _get_kind(entry)) for entry in islice(scanned, most + 1)]
        finally:
            os.close(opened)
    return FolderListing(path=path if folder.own else place.path, entries=tuple(sorted(entries[:most])), cut=len(entries) > most)


def has_entry(folder: PromptFolder, path: str) -> bool:
    """Whether something has this name, also something that may not be read. Where nobody may look, something may be."""
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
    """Also explains what goes wrong with the place while it is used."""
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
    """These lines, as far as one byte beyond the limit. Never holds more than a block of what it passes over."""
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
    """From the outer folders to the inner ones, sorted, until enough names have been looked at."""
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
    """A value between quotes: it stays on its line and cannot end early."""
    return escape_unprintable(text.replace("\\", "\\\\").replace('"', '\\"'))


def escape_unprintable(text: str) -> str:
    """Characters that are not seen, or that are no text at all, are spelled out. A file's name may hold any."""
    return text if text.isprintable() else "".join(map(_escape_character, text))


def to_one_line(text: str, *, longest: int) -> str:
    """Somebody else's words as a part of a line of ours."""
    line = escape_unprintable(" ".join(text[: longest * 4].split()))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _escape_character(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
