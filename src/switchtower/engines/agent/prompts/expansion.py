"""Expands a message before a model reads it: a called template replaces it, and the files that it mentions follow it.

Each text is scanned once, as its author wrote it: the user's words and the prompt's own. The text that they bring in, and the
text that arguments and a prompt form together, is never scanned again.

In a prompt, `$ARGUMENTS` and `{{args}}` are everything behind the name, `$1` to `$9` are its single words, and `$$1` is a plain
`$1`. All placeholders are filled in one pass: the text of an argument is never scanned for placeholders.

In a message, `@path` adds a file, `@folder/` the listing of a folder, and `@path:10-40` some lines. The message itself is not
changed; the blocks follow it. People also write `@` in addresses, decorators and greetings, so a name that leads to nothing is
silently ignored, and only a file that exists but may not be shown, or is too large, is a problem.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from switchtower.engines.agent.prompts import files, templates

_PART = files.PART.pattern
_MOST_PARTS = files.MOST_PARTS + 2
"""A name may have its origin and its kind in front."""
_CALL = re.compile(rf"/({_PART}(?::{_PART}){{0,{_MOST_PARTS - 1}}})(?:\s+(.*))?", re.DOTALL)


class MessageExpansion(Struct, frozen=True):
    text: str
    sources: tuple[str, ...] = ()
    """The files that went into the message: the template first, then the mentioned files."""
    problems: tuple[str, ...] = ()


class _FilledMessage(Struct, frozen=True):
    """A message after its template was filled in."""

    text: str
    looked_through: tuple[str, ...]
    """The texts that are scanned for mentions."""
    sources: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def expand_message(text: str, workspace: str, user_folder: Path | None, *, trusted: bool = True) -> MessageExpansion:
    """Expands a message. A workspace that is not `trusted` provides the files that the message mentions, but no skills or
    prompts.
    """
    spoken = _fill_message(text, workspace, user_folder, trusted=trusted)
    brought = expand_mentions(spoken.looked_through, workspace)
    notes = tuple(f"[{problem}]" for problem in brought.problems)
    parts = (spoken.text, *brought.blocks, *notes)
    return MessageExpansion(
        text="\n\n".join(parts),
        sources=tuple(dict.fromkeys(spoken.sources + brought.sources)),
        problems=spoken.problems + brought.problems,
    )


def parse_call(text: str) -> tuple[str, str] | None:
    """Returns the name and the arguments of a message that calls a template or an extension, whether or not it exists."""
    call = _CALL.fullmatch(text)
    return None if call is None else (call[1], (call[2] or "").strip())


def _fill_message(text: str, workspace: str, user_folder: Path | None, *, trusted: bool) -> _FilledMessage:
    call = parse_call(text)
    if call is None:
        return _FilledMessage(text, (text,))
    name, arguments = call
    catalogue = templates.load_catalog(workspace, user_folder, trusted=trusted)
    template = catalogue.templates.get(name)
    if template is None and not trusted and name in templates.load_catalog(workspace, user_folder).templates:
        told = f"`/{name}` is of this folder, which you have not trusted; hint: `tower trust add` trusts it"
        return _FilledMessage(text, (text,), problems=(told,))
    if template is None:
        problem = catalogue.unusable.get(name)
        return _FilledMessage(text, (text,), problems=(problem,) if problem else ())
    try:
        body = templates.read_template(template, workspace, user_folder)
        if template.kind == "skill":
            return _FilledMessage(_append_request(template, body, arguments), (arguments,), (template.path,))
        return _FilledMessage(fill_template(body, arguments), (body, arguments), (template.path,))
    except files.PromptFileError as trouble:
        problem = f"`{template.path}` cannot be used: {trouble}"
    except PromptTooLong:
        problem = f"`{template.path}` cannot be used: with these arguments it would be too long"
    return _FilledMessage(text, (text,), problems=(files.to_one_line(problem, longest=500),))


def _append_request(template: templates.Template, body: str, request: str) -> str:
    skill = files.quote_block("skill", body, name=template.name, path=template.path)
    return f"{skill}\n\n{request or 'Do what this skill describes.'}"


LONGEST_ADDED = 1024 * 1024
"""The most characters by which a filled prompt may be longer than its arguments: a short prompt can repeat them a thousand
times.
"""

_PLACE = re.compile(r"\$(\$(?:ARGUMENTS|[1-9])(?![A-Za-z0-9_]))|\$(ARGUMENTS|[1-9])(?![A-Za-z0-9_])|\{\{[ \t]*(args)[ \t]*\}\}")
# A quote counts at the start of a word only: in `don't` it is an apostrophe.
_WORD = re.compile(r""""((?:[^"\\]++|\\.)*+)"(?!\S)|'([^']*+)'(?!\S)|(\S++)""", re.DOTALL)
_ESCAPED = re.compile(r"\\([\"\\])")


class PromptTooLong(Exception):
    """The filled prompt would be too long."""


def fill_template(text: str, arguments: str) -> str:
    """Fills the prompt. Arguments without a placeholder follow the prompt: the user's words are never lost."""
    given = split_arguments(arguments)
    places = list(_PLACE.finditer(text))
    values = [_get_value(place, arguments, given) for place in places]
    if sum(map(len, values)) > LONGEST_ADDED + len(arguments):
        raise PromptTooLong
    remaining = iter(values)
    filled = _PLACE.sub(lambda _: next(remaining), text)
    has_place = any(place[1] is None for place in places)
    return filled if has_place or not arguments else f"{filled}\n\n{arguments}"


def split_arguments(arguments: str) -> list[str]:
    """Returns the first nine arguments, split as a shell would split them, but without ever failing."""
    return [_unquote_word(word) for word in islice(_WORD.finditer(arguments), 9)]


def _get_value(place: re.Match[str], arguments: str, given: list[str]) -> str:
    if place[1] is not None:
        return place[1]
    if place[3] or place[2] == "ARGUMENTS":
        return arguments
    number = int(place[2])
    return given[number - 1] if number <= len(given) else ""


def _unquote_word(word: re.Match[str]) -> str:
    if word[1] is not None:
        return _ESCAPED.sub(r"\1", word[1])
    return word[3] if word[2] is None else word[2]


FILE_LIMIT = 64 * 1024
TOTAL_LIMIT = 256 * 1024
MOST_FILES = 20
MOST_LISTED = 500
MOST_LOOKUPS = 500
MOST_PROBLEMS = 20

# The quantifiers are possessive and the name has a maximum length, so a text of nothing but `@` takes no longer than any other.
_MENTION = re.compile(
    r"""(?<![A-Za-z0-9_@./+\\-])@(?:"[^"\n\0]{1,1024}+"(?::\d{1,9}+(?:-\d{1,9}+)?)?|[^\s"'`<>|,;\0]{1,1024}+)"""
)
_WITH_LINES = re.compile(r"(?P<path>.+?):(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?", re.DOTALL)
_PUNCTUATION = ".:!?)]}*_~…。，、！？）」』】”’»"
_MOST_PUNCTUATION = 4


class MentionedFiles(Struct, frozen=True):
    """The result of the mentions: blocks that follow the message, their sources, and what was not included."""

    blocks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class _MentionCandidate(NamedTuple):
    """One interpretation of a mention."""

    path: str
    lines: files.LineRange | None = None


def expand_mentions(texts: Iterable[str], workspace: str) -> MentionedFiles:
    collected = _MentionCollector(files.PromptFolder(workspace))
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
    """Yields each mention as it is written behind the `@`, still with its quotes."""
    for text in texts:
        for match in _MENTION.finditer(text):
            yield match[0][1:]


class _MentionCollector:
    def __init__(self, folder: files.PromptFolder) -> None:
        self.problems: list[str] = []
        self._folder = folder
        self._blocks: dict[tuple[str, files.LineRange | None], str] = {}
        self._sources: list[str] = []
        self._left = TOTAL_LIMIT

    def build(self) -> MentionedFiles:
        problems = self.problems[:MOST_PROBLEMS]
        if more := len(self.problems) - len(problems):
            problems.append(f"{more} more were not brought in")
        return MentionedFiles(tuple(self._blocks.values()), tuple(self._sources), tuple(problems))

    def add_mention(self, mention: str) -> None:
        """Adds the first interpretation that leads to something."""
        for path, lines in _list_candidates(mention):
            try:
                if path.endswith("/"):
                    self._list_folder(path)
                else:
                    self._read_file(path, lines)
            except files.PromptFileMissing:
                continue
            except files.PromptFileError as trouble:
                if _is_worth_reporting(self._folder, path):
                    self.problems.append(
                        f"`{files.to_one_line(path, longest=200)}` was not brought in: {_describe_problem(trouble)}"
                    )
            return

    def _read_file(self, path: str, lines: files.LineRange | None) -> None:
        document = files.read_document(self._folder, path, limit=FILE_LIMIT, lines=lines)
        attributes = {"path": document.path}
        if lines is not None:
            attributes["lines"] = f"{lines.first}-{lines.last}"
        if document.cut:
            whole = "the range" if lines else f"{document.size} bytes"
            attributes["cut"] = f"the first {FILE_LIMIT} bytes of {whole}"
        self._add("file", (document.path, lines), document.text, attributes)

    def _list_folder(self, path: str) -> None:
        listing = files.list_folder(self._folder, path, most=MOST_LISTED)
        shown = f"{listing.path}/" if listing.path != "." else "./"
        attributes = {"path": shown}
        if listing.cut:
            attributes["cut"] = f"{MOST_LISTED} of its names"
        ends = {"file": "", "folder": "/", "link": "@"}
        names = "\n".join(files.escape_unprintable(entry.name) + ends[entry.kind] for entry in listing.entries)
        self._add("folder", (shown, None), names or "[empty folder]", attributes)

    def _add(self, kind: str, key: tuple[str, files.LineRange | None], text: str, attributes: dict[str, str]) -> None:
        if key in self._blocks:
            return
        if len(self._blocks) == MOST_FILES:
            raise files.PromptFileError(f"a message brings in {MOST_FILES} files at most")
        size = len(text.encode())
        if size > self._left:
            raise files.PromptFileError(f"a message brings in {TOTAL_LIMIT // 1024} KiB at most")
        self._left -= size
        self._blocks[key] = files.quote_block(kind, text, **attributes)
        if attributes["path"] not in self._sources:
            self._sources.append(attributes["path"])


def _list_candidates(mention: str) -> Iterator[_MentionCandidate]:
    """Yields the interpretations of a mention, the likeliest first: punctuation belongs to the sentence, a number behind a colon
    is a line.
    """
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


def _parse_line_range(numbered: re.Match[str]) -> files.LineRange:
    first = int(numbered["first"])
    return files.LineRange(first, int(numbered["last"] or first))


def _is_worth_reporting(folder: files.PromptFolder, path: str) -> bool:
    """Returns False for `@/components/button`, which is how some languages spell an import, and for a secret that does not
    exist.
    """
    if path.startswith("/") and not path.startswith(folder.root):
        return False
    return files.has_entry(folder, path)


def _describe_problem(error: files.PromptFileError) -> str:
    return files.to_one_line(str(error), longest=300)
