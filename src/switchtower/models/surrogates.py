"""Keeps a stream's text encodable. Some servers cut a character between two deltas, and JSON lets half of one through;
a half is no text, and the journal holds only text."""

_HIGH = ("\ud800", "\udbff")


class SurrogateRepairer:
    """For one text that arrives in pieces. A first half waits for its second; a half that stays alone becomes U+FFFD."""

    def __init__(self) -> None:
        self._half = ""
        self.changed = False
        """Something was not passed on just as it came."""

    def feed(self, piece: str) -> str:
        if not self._half and _is_encodable(piece):
            return piece
        self.changed = True
        text = self._half + piece
        self._half = ""
        if text and _HIGH[0] <= text[-1] <= _HIGH[1]:
            text, self._half = text[:-1], text[-1]
        return _repair(text)

    def close(self) -> str:
        left, self._half = self._half, ""
        return _repair(left)


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _repair(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
