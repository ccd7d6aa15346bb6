"""A program's terminal output, taken apart: text, controls and escape sequences, each handed to an emulator. It draws nothing.

Whatever no terminal of ours knows (links, clipboard, pictures, keyboard protocols) is recognised as a whole, so that none
of it shows, and is dropped. Nothing raises for what a program wrote.
"""

import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from re import Match

HELD_LIMIT = 256
"""A sequence longer than this does nothing; we only wait for its end."""

STRING_LIMIT = 512
"""Of a string (a title, a link, a picture) only the beginning is kept; only a title is ever used."""

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|(?:\x1b\[|\x9b)(?P<params>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    r"|(?P<string>\x1b[PX\]^_]|[\x90\x98\x9d\x9e\x9f])"
    r"|\x1b(?P<designated>[ -/]+)(?P<charset>[0-~])"
    r"|\x1b(?P<escape>[0-OQ-WYZ\\`-~])"
    r"|(?P<part>(?:\x1b\[|\x9b)[0-?]*[ -/]*\Z|\x1b[ -/]*\Z)"
    r"|(?P<junk>(?:\x1b\[|\x9b)[0-?]*[ -/]*|\x1b[ -/]*)"
    r"|(?P<control>[\x00-\x1f\x7f-\x9f])"
)
_END_OF_COMMAND = re.compile("[\x07\x18\x1a\x1b\x9c]")
_END_OF_STRING = re.compile("[\x18\x1a\x1b\x9c]")


class ParserTarget(Protocol):
    """What a parser drives."""

    def draw(self, data: str) -> None: ...
    def handle_control(self, char: str) -> None: ...
    def handle_escape(self, char: str) -> None: ...
    def set_charset(self, slot: str, charset: str) -> None: ...
    def handle_sequence(self, params: str, between: str, final: str) -> None: ...
    def handle_command(self, text: str) -> None: ...


class EscapeParser:
    """Keeps what an unfinished sequence needs between two texts; a sequence may be split anywhere."""

    def __init__(self, emulator: ParserTarget) -> None:
        self._emulator = emulator
        self._held = ""
        self._string: str | None = None  # the beginning of the string we are in
        self._is_command = False

    def feed(self, text: str) -> None:
        data = self._held + text
        self._held = ""
        at, end = 0, len(data)
        while at < end:
            if self._string is not None:
                at = self._skip_string(data, at)
                continue
            token = _TOKEN.match(data, at)
            assert token is not None, "every character belongs to a token"
            at = token.end()
            self._take(token)

    def _take(self, token: "Match[str]") -> None:
        emulator = self._emulator
        match token.lastgroup:
            case "text":
                emulator.draw(token.group())
            case "final" if len(token["params"]) <= HELD_LIMIT:
                emulator.handle_sequence(token["params"], token["between"], token["final"])
            case "control":
                emulator.handle_control(token.group())
            case "escape":
                emulator.handle_escape(token["escape"])
            case "charset":
                emulator.set_charset(token["designated"], token["charset"])
            case "string":
                self._string = ""
                self._is_command = token["string"] in ("\x1b]", "\x9d")
            case "part":
                self._held = token.group() if token.end() - token.start() <= HELD_LIMIT else _shorten_sequence(token.group())
            case _:
                pass  # junk: a sequence that is too long, or broken off by a control character

    def _skip_string(self, data: str, at: int) -> int:
        assert self._string is not None
        end = (_END_OF_COMMAND if self._is_command else _END_OF_STRING).search(data, at)
        stop = end.start() if end else len(data)
        room = STRING_LIMIT - len(self._string)
        if room > 0:
            self._string += data[at : min(stop, at + room)]
        if end is None:
            return len(data)
        if self._is_command and end.group() not in "\x18\x1a":
            self._emulator.handle_command(self._string)
        self._string = None
        # An ESC belongs to what comes next: usually the `\` which, alone, does nothing.
        return stop if end.group() == "\x1b" else stop + 1


def _shorten_sequence(part: str) -> str:
    """As good as the unfinished sequence: its kind, and so many parameters that it does nothing."""
    return part[: HELD_LIMIT + 3] if part[:2] == "\x1b[" or part[0] == "\x9b" else "\x1b  "
