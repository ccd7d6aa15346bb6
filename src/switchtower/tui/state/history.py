"""What was sent before, to be sent again: walked through with the arrow keys. Pure; who keeps it on disk is elsewhere."""

from collections.abc import Iterable

MOST_ENTRIES = 500
LONGEST_ENTRY = 20_000
"""Characters of one that is remembered."""


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
        """Whether it is a new one, worth keeping."""
        self.reset()
        if not text.strip() or len(text) > LONGEST_ENTRY or (self._entries and self._entries[-1] == text):
            return False
        self._entries.append(text)
        del self._entries[:-MOST_ENTRIES]
        return True

    def reset(self) -> None:
        """Whoever types something of their own is not walking any more."""
        self._index = None
        self._draft = ""

    def go_back(self, current: str) -> str | None:
        """The one before; None at the beginning. What is being written is kept for the way back."""
        if self._index is None:
            if not self._entries:
                return None
            self._draft, self._index = current, len(self._entries)
        if self._index == 0:
            return None
        self._index -= 1
        return self._entries[self._index]

    def go_forward(self) -> str | None:
        """The one after, at last what was being written; None when nobody walks."""
        if self._index is None:
            return None
        self._index += 1
        if self._index < len(self._entries):
            return self._entries[self._index]
        draft = self._draft
        self.reset()
        return draft
