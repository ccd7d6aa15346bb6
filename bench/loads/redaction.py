"""Redaction of text as terminals give it, in pieces of 4 KB, and as models do, in pieces of 5 characters and by words, against
one bare search for a few prefixes in the same pieces.

Prints microseconds of CPU a KB for each kind of text.
"""

import re
import sys
import time
from collections.abc import Callable
from pydoc_data import topics

import msgspec

from switchtower.core import redact

PIECE = 4_096
SMALL_PIECE = 5
WORD = re.compile(r"\s*\S+")
SIZE = 64 * 1024
BARE = re.compile(r"\b(?:gh[opsu]_|sk-|xox[abp]-|glpat-|AKIA|AIza|eyJ)[\w-]{16}")

PROSE = "The quick brown fox reads documentation about programs in general, and then it goes on to the next page of it. "
CODE = "def load_users(self, limit: int = 10) -> list[User]:\n    return [self._read(row) for row in self._rows[:limit]]\n"
LOG = "ts=2026-11-17T02:00:00Z level=info msg=served status=200 bytes=5123 path=/index.html dur=12ms\n"
NAMED = "password=hunter{0} token: abc{0}def next\n"


def _texts() -> dict[str, str]:
    named = "".join(NAMED.format(number) for number in range(SIZE // 30))
    texts = {"prose": PROSE, "code": CODE, "log": LOG, "worst": "a=a=", "named": named}
    return {name: (text * (SIZE // len(text) + 1))[:SIZE] for name, text in texts.items()}


def _cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _microseconds(work: Callable[[str], object], pieces: list[str]) -> float:
    """A KB, the quickest of a few rounds."""
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for piece in pieces:
            work(piece)
        best = min(best, time.process_time() - began)
    return best / (sum(map(len, pieces)) / 1024) * 1e6


def main() -> dict[str, float]:
    redactor = redact.Redactor(["a-token-of-the-daemon-0123456789"])
    found = {}
    texts = {name: _cut(text, PIECE) for name, text in _texts().items()}
    pages = "".join(topics.topics.values())[:SIZE]
    texts |= {"pieces": _cut(pages, SMALL_PIECE), "words": WORD.findall(pages)}
    for name, pieces in texts.items():
        found[name] = _microseconds(redactor.stream().feed, pieces)
        found[f"{name}, bare"] = _microseconds(BARE.search, pieces)
    return found


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(main()))
