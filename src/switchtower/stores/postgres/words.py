"""Texts and questions in the words of PostgreSQL's index. What is a word is decided here, as the search of the other store
decides it, and not by the server's language settings: letters and digits, without case and accents.
"""

import re
import unicodedata
from collections.abc import Iterator

from switchtower.stores import sqlite_search

_WORD = re.compile(r"[^\W_]+")
_PHRASE = re.compile(r'"([^"]*)"(\*?)')
_LONGEST_WORD = 500
"""In characters: the server's limit is 2,046 bytes. A longer one is known by its beginning."""
_SNIPPET_WORDS = 16


def split_words(text: str) -> list[str]:
    return [word for word, _, _ in _find_words(text)]


def _find_words(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _WORD.finditer(text):
        if word := _fold_word(match[0]):
            yield word, match.start(), match.end()


def _fold_word(word: str) -> str:
    if not word.isascii():
        bare = "".join(sign for sign in unicodedata.normalize("NFD", word) if not unicodedata.combining(sign))
        word = unicodedata.normalize("NFC", bare)
    return word.lower()[:_LONGEST_WORD]


def build_tsvector(text: str) -> str:
    """A `tsvector` as it is written: each word with its places."""
    places: dict[str, list[str]] = {}
    for number, word in enumerate(split_words(text), 1):
        places.setdefault(word, []).append(str(number))
    # The server keeps 255 places of a word, and none beyond 16,383.
    return " ".join(f"'{word}':{','.join(numbers[:255])}" for word, numbers in places.items())


class WordQuery:
    """All phrases must be there, in any order. The last word may be a beginning."""

    def __init__(self, phrases: list[tuple[list[str], bool]]) -> None:
        self._phrases = phrases

    @property
    def tsquery(self) -> str:
        """A `tsquery` as it is written. Words have nothing in them that would be an operator."""
        return " & ".join(
            " <-> ".join(f"'{word}'" for word in phrase) + (":*" if is_beginning else "")
            for phrase, is_beginning in self._phrases
        )

    def make_snippet(self, text: str) -> str:
        """Some words around the first that was asked for."""
        places = list(_find_words(text))
        at = next((number for number, place in enumerate(places) if self._matches_word(place[0])), 0)
        first = max(0, min(at - _SNIPPET_WORDS // 2, len(places) - _SNIPPET_WORDS))
        shown = places[first : first + _SNIPPET_WORDS]
        if not shown:
            return ""
        begins_late, ends_early = first > 0, first + _SNIPPET_WORDS < len(places)
        start = shown[0][1] if begins_late else 0
        end = shown[-1][2] if ends_early else len(text)
        return f"{'…' if begins_late else ''}{text[start:end]}{'…' if ends_early else ''}"

    def _matches_word(self, word: str) -> bool:
        return any(
            word.startswith(phrase[-1]) if is_beginning and word not in phrase else word in phrase
            for phrase, is_beginning in self._phrases
        )


def parse_query(text: str) -> WordQuery | None:
    """None for a text without words. The language is that of the other store's."""
    asked = sqlite_search.build_query(text)
    phrases = [(split_words(phrase), star == "*") for phrase, star in _PHRASE.findall(asked or "")]
    wanted = [(words, star) for words, star in phrases if words]
    return WordQuery(wanted) if wanted else None
