"""Makes text of models, tools, programs and users safe to print in a terminal or write to a document. Pure.

Such text must not control the terminal, hide a part of itself or change the order in which it is read. Characters that do not
print are therefore removed or shown by name, so that a user who reads a command, even with `cat`, sees every character of it.
"""

import re

from switchtower.core import characters

_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and line feed, direction marks and overrides, and surrogates, which no file can hold."""


def to_plain_text(text: str) -> str:
    return _CONTROL_CHARACTERS.sub(lambda found: characters.format_escape(found[0]), strip_terminal_codes(text))


def to_exact_text(text: str) -> str:
    """Escapes text that a decision was about: it also shows the joiners and blanks that prose keeps."""
    return characters.reveal(strip_terminal_codes(text), characters.format_escape)


def to_plain_line(text: str) -> str:
    return " ".join(to_plain_text(text).split())


_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def strip_terminal_codes(text: str) -> str:
    """Removes terminal colours from a program's output and turns each carriage return into a new line."""
    return _ESCAPE_SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


_ESCAPE = re.compile(
    r"""\x1b(?:
        \[[0-?]*[ -/]*[@-~]                 # colours and movements
      | [\]PX^_][^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)?   # titles, links, pictures
      | [ -/]*[0-Z\\^-~]                    # the short ones
    )""",
    re.VERBOSE,
)
_UNSAFE = re.compile(r"[^\x20-\x7e\n]")
_UNSAFE_IN_PROSE = frozenset("\u00a0\u00ad\u200c\u200d\u202f\u2009\u3000")
"""Blanks and joiners that languages need. In text that will be executed, even these are shown."""
_TAB = "    "


def escape_prose(text: str) -> str:
    """Escapes prose: line breaks stay, other control characters are shown."""
    return _UNSAFE.sub(_replace_in_prose, text) if not text.isascii() or not text.isprintable() else text


def escape_exact(text: str) -> str:
    """Escapes text that will be executed: every invisible character is replaced by its number."""
    return characters.reveal(text, _escape_character, keep="\n")


def escape_exact_line(text: str) -> str:
    """Like `escape_exact`, but on one line: for a title, or the start of a command."""
    return " ".join(escape_exact(text).split())


def clean_cell(text: str) -> str:
    """Cleans the text of one cell of a program's screen, so that it takes no more space than the cell."""
    return text if text.isprintable() else "".join(c for c in text if c.isprintable()) or " "


def to_safe_line(text: str) -> str:
    """Joins the text into one line and escapes it."""
    return escape_prose(" ".join(text.split()))


def clean_program_output(text: str) -> str:
    """Cleans a program's terminal output: it removes colours and keeps the final state of each line."""
    plain = _ESCAPE.sub("", text).replace("\r\n", "\n")
    if "\r" in plain:
        plain = "\n".join(_keep_last_written(row) for row in plain.split("\n"))
    return escape_prose(plain.replace("\b", ""))


def _keep_last_written(row: str) -> str:
    """Returns the last version of a line that was overwritten with carriage returns."""
    versions = row.rstrip("\r").split("\r")
    return versions[-1] or (versions[-2] if len(versions) > 1 else "")


def _replace_in_prose(found: re.Match[str]) -> str:
    character = found[0]
    if character == "\t":
        return _TAB
    if character.isprintable() or character in _UNSAFE_IN_PROSE or "\ufe00" <= character <= "\ufe0f":
        return character
    return _describe_character(character)


def _escape_character(character: str) -> str:
    return "␉   " if character == "\t" else _describe_character(character)


def _describe_character(character: str) -> str:
    number = ord(character)
    if number < 0x20:
        return chr(0x2400 + number)  # its picture in Unicode's Control Pictures block
    if number == 0x7F:
        return "␡"
    return characters.format_code_point(character)
