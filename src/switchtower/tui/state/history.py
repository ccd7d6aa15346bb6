"""What was sent before, to be sent again: walked through with the arrow keys. Pure; who keeps it on disk is elsewhere."""

from collections.abc import Iterable

MOST = 500
LONGEST = 20_000
"""Characters of one that is remembered."""


class History:
    def __init__(self, earlier: Iterable[str] = ()) -> None:
        self._sent = [text for text in earlier if text][-MOST:]
        self._at: int | None = None
        self._draft = ""

    @property
    def sent(self) -> list[str]:
        return list(self._sent)

    @property
    def is_walking(self) -> bool:
        return self._at is not None

    def add(self, text: str) -> bool:
        """Whether it is a new one, worth keeping."""
        self.stop()
        if not text.strip() or len(text) > LONGEST or (self._sent and self._sent[-1] == text):
            return False
        self._sent.append(text)
        del self._sent[:-MOST]
        return True

    def stop(self) -> None:
        """Whoever types something of their own is not walking any more."""
        self._at = None
        self._draft = ""

    def older(self, current: str) -> str | None:
        """The one before; None at the beginning. What is being written is kept for the way back."""
        if self._at is None:
            if not self._sent:
                return None
            self._draft, self._at = current, len(self._sent)
        if self._at == 0:
            return None
        self._at -= 1
        return self._sent[self._at]

    def newer(self) -> str | None:
        """The one after, at last what was being written; None when nobody walks."""
        if self._at is None:
            return None
        self._at += 1
        if self._at < len(self._sent):
            return self._sent[self._at]
        draft = self._draft
        self.stop()
        return draft
