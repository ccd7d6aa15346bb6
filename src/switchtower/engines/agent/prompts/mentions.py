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


class MentionedFiles(Struct, frozen=True):
    """What the mentions came to: blocks to follow the message, where they are from, and what was not brought in."""

    blocks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class _MentionCandidate(NamedTuple):
    """One way to read a mention."""

    path: str
    lines: reading.LineRange | None = None


def expand_mentions(texts: Iterable[str], workspace: str) -> MentionedFiles:
    collected = _MentionCollector(reading.PromptFolder(workspace))
    looked_up: set[str] = set()
    for mention in _find_mentions(texts):
        if mention in looked_up:
            continue
        if len(looked_up) == MOST_LOOKUPS:
            collected.problems.append(f"only the first {MOST_LOOKUPS} names behind an `@` were looked up")
            break
        looked_up.add(mention)
        collected.add_mention(mention)
    return collected.build()


def _find_mentions(texts: Iterable[str]) -> Iterator[str]:
    """As written behind the `@`, still with its quotes."""
    for text in texts:
        for match in _MENTION.finditer(text):
            yield match[0][1:]


class _MentionCollector:
    def __init__(self, folder: reading.PromptFolder) -> None:
        self.problems: list[str] = []
        self._folder = folder
        self._blocks: dict[tuple[str, reading.LineRange | None], str] = {}
        self._sources: list[str] = []
        self._left = TOTAL_LIMIT

    def build(self) -> MentionedFiles:
        problems = self.problems[:MOST_PROBLEMS]
        if more := len(self.problems) - len(problems):
            problems.append(f"{more} more were not brought in")
        return MentionedFiles(tuple(self._blocks.values()), tuple(self._sources), tuple(problems))

    def add_mention(self, mention: str) -> None:
        """The first reading that leads somewhere counts."""
        for path, lines in _list_candidates(mention):
            try:
                if path.endswith("/"):
                    self._list_folder(path)
                else:
                    self._read_file(path, lines)
            except reading.PromptFileMissing:
                continue
            except reading.PromptFileError as trouble:
                if _is_worth_reporting(self._folder, path):
                    self.problems.append(
                        f"`{blocks.to_one_line(path, longest=200)}` was not brought in: {_describe_problem(trouble)}"
                    )
            return

    def _read_file(self, path: str, lines: reading.LineRange | None) -> None:
        document = reading.read_document(self._folder, path, limit=FILE_LIMIT, lines=lines)
        attributes = {"path": document.path}
        if lines is not None:
            attributes["lines"] = f"{lines.first}-{lines.last}"
        if document.cut:
            whole = "the range" if lines else f"{document.size} bytes"
            attributes["cut"] = f"the first {FILE_LIMIT} bytes of {whole}"
        self._add("file", (document.path, lines), document.text, attributes)

    def _list_folder(self, path: str) -> None:
        listing = reading.list_folder(self._folder, path, most=MOST_LISTED)
        shown = f"{listing.path}/" if listing.path != "." else "./"
        attributes = {"path": shown}
        if listing.cut:
            attributes["cut"] = f"{MOST_LISTED} of its names"
        ends = {"file": "", "folder": "/", "link": "@"}
        names = "\n".join(blocks.escape_unprintable(entry.name) + ends[entry.kind] for entry in listing.entries)
        self._add("folder", (shown, None), names or "[empty folder]", attributes)

    def _add(self, kind: str, key: tuple[str, reading.LineRange | None], text: str, attributes: dict[str, str]) -> None:
        if key in self._blocks:
            return
        if len(self._blocks) == MOST_FILES:
            raise reading.PromptFileError(f"a message brings in {MOST_FILES} files at most")
        size = len(text.encode())
        if size > self._left:
            raise reading.PromptFileError(f"a message brings in {TOTAL_LIMIT // 1024} KiB at most")
        self._left -= size
        self._blocks[key] = blocks.quote_block(kind, text, **attributes)
        if attributes["path"] not in self._sources:
            self._sources.append(attributes["path"])


def _list_candidates(mention: str) -> Iterator[_MentionCandidate]:
    """What a mention may mean, the likeliest first: punctuation belongs to the sentence, a number behind a colon is a line."""
    if mention.startswith('"'):
        path, lines = mention[1:].split('"', 1)
        if numbered := _WITH_LINES.fullmatch(f"{path}{lines}") if lines else None:
            yield _MentionCandidate(numbered["path"], _parse_line_range(numbered))
        else:
            yield _MentionCandidate(path)
        return
    bare = mention.rstrip(_PUNCTUATION)
    if not bare:
        return
    for ending in range(min(len(mention) - len(bare), _MOST_PUNCTUATION) + 1):
        name = mention[: len(bare) + ending]
        if numbered := _WITH_LINES.fullmatch(name):
            yield _MentionCandidate(numbered["path"], _parse_line_range(numbered))
        yield _MentionCandidate(name)


def _parse_line_range(numbered: re.Match[str]) -> reading.LineRange:
    first = int(numbered["first"])
    return reading.LineRange(first, int(numbered["last"] or first))


def _is_worth_reporting(folder: reading.PromptFolder, path: str) -> bool:
    """Not for `@/components/button`, which is how some languages spell an import, and not for a secret that is not there."""
    if path.startswith("/") and not path.startswith(folder.root):
        return False
    return reading.has_entry(folder, path)


def _describe_problem(error: reading.PromptFileError) -> str:
    return blocks.to_one_line(str(error), longest=300)
