"""Completion of slash commands and file mentions (`@path`) at the cursor, and the history of sent messages. Pure."""

import re
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import NamedTuple

from switchtower.tui.state import slash

MOST_OPTIONS = 50
LONGEST_MENTION = 1_024
"""The maximum number of characters before the cursor that are searched for a mention."""
# The daemon recognises a mention only at the start of a word: an address such as me@example.com is not one.
_BEING_TYPED = re.compile(r"(?:^|(?<=[\s(\[{,;]))@(?:\"([^\"\n]*)|([^\s\"]*))$")


class FileMention(NamedTuple):
    """A mention that is being typed. `start` is the position of the `@`."""

    start: int
    wanted: str


def find_mention(before_cursor: str) -> FileMention | None:
    cut = max(0, len(before_cursor) - LONGEST_MENTION)
    found = _BEING_TYPED.search(before_cursor[cut:])
    if found is None or (cut and not found.start()):
        return None
    return FileMention(cut + found.start(), found[1] if found[1] is not None else found[2] or "")


def format_mention(path: str) -> str:
    """Formats a mention as the daemon parses it."""
    return f'@"{path}"' if re.search(r"[\s\"]", path) else f"@{path}"


def rank_files(wanted: str, paths: Iterable[str]) -> list[str]:
    """Returns the most likely files, best first: by the start of the name, by any part of it, by its letters in order."""
    wanted = wanted.casefold()
    ranked = ((rank, len(path), path) for path in paths if (rank := _rank(wanted, path.casefold())) is not None)
    return [path for _, _, path in nsmallest(MOST_OPTIONS, ranked)]


def _rank(wanted: str, path: str) -> int | None:
    if not wanted:
        return path.count("/")
    if path.startswith(wanted):
        return 0
    if path.rstrip("/").rsplit("/", 1)[-1].startswith(wanted):
        return 1
    if wanted in path:
        return 2
    letters = iter(path)
    return 3 if all(letter in letters for letter in wanted) else None


class CompletionOffer(NamedTuple):
    """Completions for the text before the cursor, of which the part from `start` on is replaced."""

    start: int
    options: list[slash.SlashOption]


NO_OFFER = CompletionOffer(0, [])


def find_offer(
    before_cursor: str,
    *,
    templates: Sequence[slash.SlashOption] = (),
    values: Sequence[slash.SlashOption] = (),
    files: Iterable[str] = (),
) -> CompletionOffer:
    if before_cursor.startswith("/") and (found := slash.complete_slash(before_cursor, templates, values)):
        # A command that is already complete needs no completion.
        return NO_OFFER if len(found) == 1 and found[0].text == before_cursor else CompletionOffer(0, found)
    if (mention := find_mention(before_cursor)) is not None:
        paths = rank_files(mention.wanted, files)
        if paths == [mention.wanted]:
            return NO_OFFER
        return CompletionOffer(mention.start, [slash.SlashOption(format_mention(path)) for path in paths])
    return NO_OFFER


MOST_ENTRIES = 500
LONGEST_ENTRY = 20_000
"""The maximum number of characters in a remembered message."""


class InputHistory:
    def __init__(self, earlier: Iterable[str] = ()) -> None:
        self._entries = [text for text in earlier if text][-MOST_ENTRIES:]
        self._index: int | None = None
        self._draft = ""

    @property
    def entries(self) -> list[str]:
        return list(self._entries)

    @property
    def is_browsing(self) -> bool:
        return self._index is not None

    def add(self, text: str) -> bool:
        """Adds a sent message and returns whether it is new and worth keeping."""
        self.reset()
        if not text.strip() or len(text) > LONGEST_ENTRY or (self._entries and self._entries[-1] == text):
            return False
        self._entries.append(text)
        del self._entries[:-MOST_ENTRIES]
        return True

    def reset(self) -> None:
        """Stops browsing, for example when the user types."""
        self._index = None
        self._draft = ""

    def go_back(self, current: str) -> str | None:
        """Returns the previous message, or None at the oldest one. The current draft is kept for the way forward."""
        if self._index is None:
            if not self._entries:
                return None
            self._draft, self._index = current, len(self._entries)
        if self._index == 0:
            return None
        self._index -= 1
        return self._entries[self._index]

    def go_forward(self) -> str | None:
        """Returns the next message and finally the draft; None when the user is not browsing."""
        if self._index is None:
            return None
        self._index += 1
        if self._index < len(self._entries):
            return self._entries[self._index]
        draft = self._draft
        self.reset()
        return draft
