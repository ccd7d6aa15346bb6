"""What a word is read from. The reader is one; a word reads on in it and hands it the commands that it comes across."""

from typing import Protocol


class WordSource(Protocol):
    text: str
    at: int

    def add_doubt(self, reason: str, *, unreadable: bool = False) -> None: ...

    def enter(self) -> bool:
        """One level deeper; False, and all is read, when that is too deep."""
        ...

    def leave(self) -> None: ...

    def read_nested(self) -> None:
        """Reads commands up to the closing parenthesis, which is taken too."""
        ...

    def read_quoted_commands(self, text: str) -> None:
        """Reads the commands of a text that stood between backquotes."""
        ...
