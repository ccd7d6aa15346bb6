"""Keeps the beginning and the end of a stream of bytes, in bounded memory, and says how much went missing between."""


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
        # Cut only when twice too long: each byte is then moved at most once on average.
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit]

    def text(self) -> str:
        tail = self._tail[-self._tail_limit :] if self._tail_limit else b""
        left_out = self.total - len(self._head) - len(tail)
        if left_out == 0:
            return (self._head + tail).decode(errors="replace")
        head_text = self._head.decode(errors="replace").rstrip("\ufffd")
        tail_text = tail.decode(errors="replace").lstrip("\ufffd")
        return f"{head_text}\n[… {left_out} bytes left out …]\n{tail_text}"
