"""Output in pieces fit for the journal: text, not too small, not too large, never ending inside a character, nor inside an
escape sequence whose rest is near. Pure: it reads nothing and knows no time. Whoever feeds it says when there is silence.

Pieces are measured in bytes as they came; a text never has more characters than that.
"""

import codecs
import re

LIMIT = 16 * 1024
NEAR = 64
"""How far behind the limit the rest of an escape sequence may end to be waited for."""
_LONGEST_CHARACTER = 4
_ESCAPE = b"\x1b"
_WHOLE_SEQUENCE = re.compile(
    # Whatever else comes in its place ends a sequence too; an ESC begins the next one.
    rb"""\x1b(?:
        \[ [\x20-\x3f]* (?: [^\x20-\x3f\x1b] | (?=\x1b) )                                       # CSI: parameters, then a letter
      | [\]PX^_] [^\x07\x18\x1a\x1b]* (?: [\x07\x18\x1a] | \x1b\\ | (?=\x1b[^\\]) )             # OSC, DCS: until BEL or ST
      | [NO] .                                                                                  # one character of another set
      | [\x20-\x2f]+ (?: [^\x20-\x2f\x1b] | (?=\x1b) )
      | [^\x20-\x2f\[\]PX^_NO\x1b]
      | (?=\x1b)
    )""",
    re.VERBOSE | re.DOTALL,
)


class OutputChunker:
    def __init__(self, limit: int = LIMIT) -> None:
        assert limit >= _LONGEST_CHARACTER, "a piece holds at least one character"
        self._limit = limit
        self._held = b""
        self._is_silent = False

    @property
    def is_empty(self) -> bool:
        """Nothing waits, neither for more nor for a flush."""
        return not self._held

    def feed(self, data: bytes) -> list[str]:
        """The pieces that are full with this. What remains waits for more."""
        if not data:
            return []
        self._is_silent = False
        held = self._held + data
        texts = []
        start = 0
        while len(held) - start >= self._limit and (end := self._find_piece_end(held, start)) is not None:
            texts.append(_decode(held[start:end]))
            start = end
        self._held = held[start:]
        return texts

    def flush(self) -> str:
        """What there is, without a character whose rest is to come. The beginning of an escape sequence is kept back too,
        but only once: at the next flush, if nothing has come between, it is given as it is."""
        held = self._held
        end = len(held)
        if not self._is_silent:
            begun = _find_open_sequence(held, 0, end)
            if begun is not None and end - begun < NEAR:
                end = begun
        self._is_silent = True
        end = _find_character_end(held, 0, end)
        self._held = held[end:]
        return _decode(held[:end])

    def close(self) -> str:
        """Everything: nothing more will come."""
        held, self._held = self._held, b""
        return _decode(held)

    def _find_piece_end(self, held: bytes, start: int) -> int | None:
        """`None` when the rest of an escape sequence should be waited for."""
        end = start + self._limit
        begun = _find_open_sequence(held, start, end)
        if begun is not None:
            rest = _WHOLE_SEQUENCE.match(held, begun, end + NEAR)
            if rest is not None:
                end = rest.end()
            elif len(held) < end + NEAR:
                return None
        return _find_character_end(held, start, end)


def _find_open_sequence(held: bytes, start: int, end: int) -> int | None:
    """Where the escape sequence begins in which `end` lies, if it lies in one."""
    begun = held.rfind(_ESCAPE, start, end)
    if begun == -1:
        return None
    if begun == end - 1:
        # Perhaps the first half of what ends a longer one.
        before = held.rfind(_ESCAPE, start, begun)
        if before != -1 and _WHOLE_SEQUENCE.match(held, before, end) is None:
            return before
        return begun
    return begun if _WHOLE_SEQUENCE.match(held, begun, end) is None else None


def _find_character_end(held: bytes, start: int, end: int) -> int:
    """The same end, or up to three bytes before it where a character has begun that may yet be completed."""
    tail = max(start, end - _LONGEST_CHARACTER + 1)
    return tail + codecs.utf_8_decode(held[tail:end], "replace", False)[1]


def _decode(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")
