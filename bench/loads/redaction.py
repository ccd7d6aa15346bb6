"""Redaction of text as terminals give it, in pieces of 4 KB, and as models do, in pieces of 5 characters and by words, against
one bare search for a few prefixes in the same pieces. A page is read again and again, as most words that a model writes were
written before; the unread pages are read once, so what is remembered of earlier text helps less.

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
ROUNDS = 5
BARE = re.compile(r"\b(?:gh[opsu]_|sk-|xox[abp]-|glpat-|AKIA|AIza|eyJ)[\w-]{16}")

PROSE = "The quick brown fox reads documentation about programs in general, and then it goes on to the next page of it. "
CODE = "def load_users(self, limit: int = 10) -> list[User]:\n    return [self._read(row) for row in self._rows[:limit]]\n"
LOG = "ts=2026-11-17T02:00:00Z level=info msg=served status=200 bytes=5123 path=/index.html dur=12ms\n"
NAMED = "password=hunter{0} token: abc{0}def next\n"


def _make_texts() -> dict[str, str]:
    named = "".join(NAMED.format(number) for number in range(SIZE // 30))
    texts = {"prose": PROSE, "code": CODE, "log": LOG, "worst": "a=a=", "named": named}
    return {name: (text * (SIZE // len(text) + 1))[:SIZE] for name, text in texts.items()}


def _cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _measure_microseconds(work: Callable[[str], object], rounds: list[list[str]]) -> float:
    """A KB, the quickest of the rounds."""
    best = float("inf")
    for pieces in rounds:
        began = time.process_time()
        for piece in pieces:
            work(piece)
        best = min(best, (time.process_time() - began) / sum(map(len, pieces)))
    return best * 1024 * 1e6


def main() -> dict[str, float]:
    redactor = redact.Redactor(["a-token-of-the-daemon-0123456789"])
    found = {}
    texts = {name: [_cut(text, PIECE)] * ROUNDS for name, text in _make_texts().items()}
    page, *unread = _cut("".join(topics.topics.values()), SIZE)[: ROUNDS + 1]
    texts |= {"pieces": [_cut(page, SMALL_PIECE)] * ROUNDS, "words": [WORD.findall(page)] * ROUNDS}
    texts["unread"] = [_cut(text, SMALL_PIECE) for text in unread]
    for name, rounds in texts.items():
        found[name] = _measure_microseconds(redactor.open_stream().feed, rounds)
        found[f"{name}, bare"] = _measure_microseconds(BARE.search, rounds)
    return found


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(main()))
