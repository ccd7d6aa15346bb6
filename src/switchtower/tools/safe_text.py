"""Makes foreign text safe to show: nothing in it moves a cursor, hides a line or reverses the reading direction, and all of it
can be stored as JSON.

`HeadAndTail` keeps the start and the end of a stream of bytes in bounded memory, and notes how much is missing in between. A
`SpillingCapture` also writes the whole of a long stream into a file. A cut never lies inside of a line where that can be avoided:
the rest of a secret that is cut in two would not be recognised, and would be shown.
"""

import codecs
import os
import re

from switchtower.core import characters

# Two marks that join or separate letters inside of words are missing here: names of files have them in good faith.
_UNSEEN_IN_NAMES = re.compile("[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")
_BYTES = range(0xDC80, 0xDD00)
"""The code points with which Python represents the undecodable bytes of a name."""


def escape_control_characters(text: str) -> str:
    """Escapes characters that cannot be seen, and those that reorder or hide text. Newlines and tabs stay."""
    return characters.reveal(text, _escape_character)


def escape_to_one_line(name: str) -> str:
    """Escapes a name so that it cannot be read as two names, nor as another."""
    return _UNSEEN_IN_NAMES.sub(_escape, name)


def _escape(found: re.Match[str]) -> str:
    return _escape_character(found[0])


def _escape_character(character: str) -> str:
    code = ord(character)
    return f"\\x{code - 0xDC00:02x}" if code in _BYTES else characters.format_escape(character)


def truncate_text(content: bytes, limit: int, *, errors: str) -> tuple[str, bool]:
    """Returns as much of it as the limit allows, without a partial character, and whether there was more."""
    is_cut = len(content) > limit
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    return decoder.decode(content[:limit], final=not is_cut), is_cut


def decode_name(name: str) -> str:
    """Returns a file's name; undecodable bytes in it are escaped as `\\xff`."""
    return os.fsencode(name).decode(errors="backslashreplace")


SPILL_LIMIT = 64 * 1024 * 1024
LINE_REACH = 4 * 1024
"""The most characters around a cut that are searched for the end of a line; without one, so many are left out."""
_END_OF_KEY = re.compile(r"-----END [^\n]{0,64}-----[^\n]*\n?")


def find_start(text: str, reach: int = LINE_REACH) -> int:
    """Returns where a text may start whose earlier part was left out: at the start of a line, and behind a key whose start is
    missing.
    """
    newline = text.find("\n", 0, reach)
    start = min(reach, len(text)) if newline < 0 else newline + 1
    end_of_key = _END_OF_KEY.search(text)
    if end_of_key is not None and text.find("-----BEGIN ", 0, end_of_key.start()) < 0:
        start = max(start, end_of_key.end())
    return start


def find_end(text: str, reach: int = LINE_REACH) -> int:
    """Returns where a text may end whose later part is left out: at the end of a line."""
    newline = text.rfind("\n", max(0, len(text) - reach))
    return max(0, len(text) - reach) if newline < 0 else newline


class HeadAndTail:
    def __init__(self, keep_bytes: int) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._head_limit = keep_bytes // 2
        self._tail_limit = keep_bytes - self._head_limit
        self.total = 0

    def add(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        # It is cut only when twice too long: each byte is then moved at most once on average.
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit]

    def render(self) -> str:
        tail = self._tail[-self._tail_limit :] if self._tail_limit else b""
        left_out = self.total - len(self._head) - len(tail)
        if left_out == 0:
            return (self._head + tail).decode(errors="replace")
        head_text = self._head.decode(errors="replace").rstrip("\ufffd")
        tail_text = tail.decode(errors="replace").lstrip("\ufffd")
        head_end = find_end(head_text, min(LINE_REACH, self._head_limit // 4))
        tail_start = find_start(tail_text, min(LINE_REACH, self._tail_limit // 4))
        left_out += len(head_text[head_end:].encode()) + len(tail_text[:tail_start].encode())
        return f"{head_text[:head_end]}\n[… {left_out} bytes left out …]\n{tail_text[tail_start:]}"


class SpillingCapture(HeadAndTail):
    """Writes to the descriptor `spill` only once there is more than is kept: after a short stream the file is still empty. For a
    very long stream the file has the first `spill_limit` bytes. The caller opens, names and closes it.
    """

    def __init__(self, keep_bytes: int, spill: int | None = None, *, spill_limit: int = SPILL_LIMIT) -> None:
        super().__init__(keep_bytes)
        self._keep_bytes = keep_bytes
        self._spill = spill
        self._spill_limit = spill_limit
        self.spilled = 0

    def add(self, chunk: bytes) -> None:
        if self._spill is not None and self.total + len(chunk) > self._keep_bytes:
            if self.spilled == 0:
                self._write(bytes(self._head + self._tail))  # nothing is left out so far
            self._write(chunk)
        super().add(chunk)

    def _write(self, chunk: bytes) -> None:
        rest = memoryview(chunk)[: self._spill_limit - self.spilled]
        while rest and self._spill is not None:
            try:
                written = os.write(self._spill, rest)
            except OSError:
                # A full disk must not fail the command; `spilled` has the number of bytes written.
                self._spill = None
                return
            self.spilled += written
            rest = rest[written:]
