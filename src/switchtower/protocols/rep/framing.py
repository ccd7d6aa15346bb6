"""Lines out of the pieces that a pipe delivers. Bounded: of a line that is too long nothing is kept, and that it was there is
told once. Does no I/O.
"""

MAX_LINE_BYTES = 16 * 1024 * 1024


class BoundedLineSplitter:
    def __init__(self, longest: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = longest
        self._pieces: list[bytes] = []
        """Of the line that has no end yet."""
        self._length = 0
        self._skipping = False

    def feed(self, piece: bytes) -> "list[bytes | None]":
        """The lines that ended with this piece, without their ends; None for one that was too long. Empty ones are left out."""
        *ended, rest = piece.split(b"\n")
        lines: list[bytes | None] = []
        for end in ended:
            self._add(end)
            line = None if self._skipping else b"".join(self._pieces).strip()
            if line != b"":
                lines.append(line)
            self._pieces, self._length, self._skipping = [], 0, False
        self._add(rest)
        return lines

    def take_rest(self) -> "list[bytes | None]":
        """What was left without an end when the input ended."""
        return self.feed(b"\n")

    def _add(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > self._max_bytes:
            self._pieces, self._skipping = [], True
        elif piece:
            self._pieces.append(piece)
