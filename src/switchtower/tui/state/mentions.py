"""Names of files in a message, `@path`: where one is being typed, and which files it may become. Pure."""

import re
from collections.abc import Iterable
from heapq import nsmallest
from typing import NamedTuple

MOST_OPTIONS = 50
LONGEST_MENTION = 1_024
"""Characters before the cursor in which a name is looked for."""
# The daemon reads a mention at the start of a word only: an address such as me@example.com is none.
_BEING_TYPED = re.compile(r"(?:^|(?<=[\s(\[{,;]))@(?:\"([^\"\n]*)|([^\s\"]*))$")


class FileMention(NamedTuple):
    """`start` is where the `@` is."""

    start: int
    wanted: str


def find_mention(before_cursor: str) -> FileMention | None:
    cut = max(0, len(before_cursor) - LONGEST_MENTION)
    found = _BEING_TYPED.search(before_cursor[cut:])
    if found is None or (cut and not found.start()):
        return None
    return FileMention(cut + found.start(), found[1] if found[1] is not None else found[2] or "")


def format_mention(path: str) -> str:
    """As the daemon reads it."""
    return f'@"{path}"' if re.search(r"[\s\"]", path) else f"@{path}"


def rank_files(wanted: str, paths: Iterable[str]) -> list[str]:
    """The files that are probably meant, the best first: by the name's beginning, by any part, by letters in order."""
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
