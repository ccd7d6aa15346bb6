"""`@path` in a message brings a file in, `@folder/` what a folder holds, `@path:10-40` some lines. The message itself is
not touched: what it names follows in blocks.

People also write `@` in addresses, decorators and greetings. So a name that leads to nothing is left alone without a word,
and only what is there but may not be shown, or is too much, is a problem.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from switchtower.engines.agent.prompts import blocks, reading

FILE_LIMIT = 64 * 1024
TOTAL_LIMIT = 256 * 1024
MOST_FILES = 20
MOST_LISTED = 500
MOST_LOOKUPS = 500
MOST_PROBLEMS = 20

# Possessive, and with a longest name, so that a text of nothing but `@` takes no longer than any other.
_MENTION = re.compile(
    r"""(?<![A-Za-z0-9_@./+\\-])@(?:"[^"\n\0]{1,1024}+"(?::\d{1,9}+(?:-\d{1,9}+)?)?|[^\s"'`<>|,;\0]{1,1024}+)"""
)
_WITH_LINES = re.compile(r"(?P<path>.+?):(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?", re.DOTALL)
_PUNCTUATION = ".:!?)]}*_~…。，、！？）」』】”’»"
_MOST_PUNCTUATION = 4


class Brought(Struct, frozen=True):
    """What the mentions came to: blocks to follow the message, where they are from, and what was not brought in."""

    blocks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class _Reading(NamedTuple):
    """One way to read a mention."""

    path: str
    lines: reading.Lines | None = None


def bring_in(texts: Iterable[str], workspace: str) -> Brought:
    collected = _Collected(reading.Folder(workspace))
    looked_up: set[str] = set()
    for mention in _mentions(texts):
        if mention in looked_up:
            continue
        if len(looked_up) == MOST_LOOKUPS:
            collected.problems.append(f"only the first {MOST_LOOKUPS} names behind an `@` were looked up")
            break
        looked_up.add(mention)
        collected.take(mention)
    return collected.brought()


def _mentions(texts: Iterable[str]) -> Iterator[str]:
    """As written behind the `@`, still with its quotes."""
    for text in texts:
        for match in _MENTION.finditer(text):
            yield match[0][1:]


class _Collected:
    def __init__(self, folder: reading.Folder) -> None:
        self.problems: list[str] = []
        self._folder = folder
        self._blocks: dict[tuple[str, reading.Lines | None], str] = {}
        self._sources: list[str] = []
        self._left = TOTAL_LIMIT

    def brought(self) -> Brought:
        problems = self.problems[:MOST_PROBLEMS]
        if more := len(self.problems) - len(problems):
            problems.append(f"{more} more were not brought in")
        return Brought(tuple(self._blocks.values()), tuple(self._sources), tuple(problems))

    def take(self, mention: str) -> None:
        """The first reading that leads somewhere counts."""
        for path, lines in _readings(mention):
            try:
                if path.endswith("/"):
                    self._list(path)
                else:
                    self._read(path, lines)
            except reading.Missing:
                continue
            except reading.Trouble as trouble:
                if _worth_a_word(self._folder, path):
                    self.problems.append(f"`{blocks.one_line(path, longest=200)}` was not brought in: {_told(trouble)}")
            return

    def _read(self, path: str, lines: reading.Lines | None) -> None:
        document = reading.read(self._folder, path, limit=FILE_LIMIT, lines=lines)
        attributes = {"path": document.path}
        if lines is not None:
            attributes["lines"] = f"{lines.first}-{lines.last}"
        if document.cut:
            whole = "the range" if lines else f"{document.size} bytes"
            attributes["cut"] = f"the first {FILE_LIMIT} bytes of {whole}"
        self._add("file", (document.path, lines), document.text, attributes)

    def _list(self, path: str) -> None:
        listing = reading.names(self._folder, path, most=MOST_LISTED)
        shown = f"{listing.path}/" if listing.path != "." else "./"
        attributes = {"path": shown}
        if listing.cut:
            attributes["cut"] = f"{MOST_LISTED} of its names"
        ends = {"file": "", "folder": "/", "link": "@"}
        names = "\n".join(blocks.printable(entry.name) + ends[entry.kind] for entry in listing.entries)
        self._add("folder", (shown, None), names or "[empty folder]", attributes)

    def _add(self, kind: str, key: tuple[str, reading.Lines | None], text: str, attributes: dict[str, str]) -> None:
        if key in self._blocks:
            return
        if len(self._blocks) == MOST_FILES:
            raise reading.Trouble(f"a message brings in {MOST_FILES} files at most")
        size = len(text.encode())
        if size > self._left:
            raise reading.Trouble(f"a message brings in {TOTAL_LIMIT // 1024} KiB at most")
        self._left -= size
        self._blocks[key] = blocks.block(kind, text, **attributes)
        if attributes["path"] not in self._sources:
            self._sources.append(attributes["path"])


def _readings(mention: str) -> Iterator[_Reading]:
    """What a mention may mean, the likeliest first: punctuation belongs to the sentence, a number behind a colon is a line."""
    if mention.startswith('"'):
        path, lines = mention[1:].split('"', 1)
        if numbered := _WITH_LINES.fullmatch(f"{path}{lines}") if lines else None:
            yield _Reading(numbered["path"], _lines(numbered))
        else:
            yield _Reading(path)
        return
    bare = mention.rstrip(_PUNCTUATION)
    if not bare:
        return
    for ending in range(min(len(mention) - len(bare), _MOST_PUNCTUATION) + 1):
        name = mention[: len(bare) + ending]
        if numbered := _WITH_LINES.fullmatch(name):
            yield _Reading(numbered["path"], _lines(numbered))
        yield _Reading(name)


def _lines(numbered: re.Match[str]) -> reading.Lines:
    first = int(numbered["first"])
    return reading.Lines(first, int(numbered["last"] or first))


def _worth_a_word(folder: reading.Folder, path: str) -> bool:
    """Not for `@/components/button`, which is how some languages spell an import, and not for a secret that is not there."""
    if path.startswith("/") and not path.startswith(folder.root):
        return False
    return reading.is_there(folder, path)


def _told(trouble: reading.Trouble) -> str:
    return blocks.one_line(str(trouble), longest=300)
