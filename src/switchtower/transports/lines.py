"""Bytes in, whole lines out. Pure: no I/O, and never more than one unfinished line in memory.

A line ends at its line feed and nowhere else: a carriage return before it stays (JSON takes it for white space), and
because bytes are split, not text, a character may arrive in pieces. Lines without content are skipped.
"""

_BLANK = (b"", b"\r")


class LineSplitter:
    """Splits one stream. A line of more than `limit` bytes, its end not counted, is thrown away; the stream goes on after it."""

    __slots__ = ("_discarded", "_discarding", "_limit", "_unfinished", "oversized", "oversizes")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._unfinished = bytearray()
        self._discarding = False
        self._discarded = 0
        self.oversized = 0
        """How many lines were thrown away. Counts as soon as the limit is passed, not when the line ends."""
        self.oversizes: list[int] = []
        """How long they were, of those that have ended. Both are for the reader to clear."""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        size = len(data)
        if data.find(b"\n") == size - 1 and not self._unfinished and not self._discarding and 2 < size <= self._limit:
            return [data[:-1]]  # one whole line in one read, as from a client that waits for each answer

        lines = data.split(b"\n")
        rest = lines.pop()
        if lines:
            if self._discarding:
                self._end_discarded(len(lines[0]))
                del lines[0]
            elif self._unfinished:
                lines[0] = b"".join((self._unfinished, lines[0]))
            if size + len(self._unfinished) > self._limit or b"" in lines or b"\r" in lines:
                lines = self._drop_oversized(lines)
            self._unfinished.clear()

        if self._discarding:
            self._discarded += len(rest)
        elif rest:
            self._unfinished += rest
            if len(self._unfinished) > self._limit:
                self._discarding, self._discarded = True, len(self._unfinished)
                self._unfinished.clear()
                self.oversized += 1
        return lines

    def finish(self) -> list[bytes]:
        """The last line when nothing more will come: it may lack its line feed."""
        if self._discarding:
            self._end_discarded(0)
        last = [bytes(self._unfinished)]
        self._unfinished.clear()
        return self._drop_oversized(last)

    def _drop_oversized(self, lines: list[bytes]) -> list[bytes]:
        limit = self._limit
        usable = [line for line in lines if len(line) <= limit and line not in _BLANK]
        if len(usable) != len(lines):
            oversizes = [len(line) for line in lines if len(line) > limit]
            self.oversized += len(oversizes)
            self.oversizes += oversizes
        return usable

    def _end_discarded(self, last_bytes: int) -> None:
        self._discarding = False
        self.oversizes.append(self._discarded + last_bytes)
