"""Text that came from a model, a tool or a person, as a document may carry it. Pure.

What steers a terminal or turns the direction of writing is left out or spelled: whoever reads the file with `cat`, or reads a
command in it, sees what is there.

Text that came from elsewhere, made safe to look at. Pure.

What a model, a tool or a program wrote must not steer the terminal, hide a part of itself or change the order in which it is
read. So whatever does not print is shown by its name, and never passed on."""

import re

from switchtower.core import characters

_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls but tab and line feed, marks and overrides of direction, and halves of characters that no file can hold."""


def to_plain_text(text: str) -> str:
    return _CONTROL_CHARACTERS.sub(lambda found: characters.format_escape(found[0]), strip_terminal_codes(text))


def to_exact_text(text: str) -> str:
    """What was decided about: here also the joiners and blanks that prose keeps are spelled."""
    return characters.reveal(strip_terminal_codes(text), characters.format_escape)


def to_plain_line(text: str) -> str:
    return " ".join(to_plain_text(text).split())


_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def strip_terminal_codes(text: str) -> str:
    """What a program wrote for a terminal, without its colours and with each return to the line's start as a new line."""
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
"""Blanks and joiners that languages need. In what will run, even these are shown."""
_TAB = "    "


def escape_prose(text: str) -> str:
    """What somebody says: lines stay lines, other steering is shown."""
    return _UNSAFE.sub(_replace_in_prose, text) if not text.isascii() or not text.isprintable() else text


def escape_exact(text: str) -> str:
    """What will run: every character that cannot be seen has its number in its place."""
    return characters.reveal(text, _escape_character, keep="\n")


def escape_exact_line(text: str) -> str:
    """The same on one line: a title, or the beginning of what will run."""
    return " ".join(escape_exact(text).split())


def clean_cell(text: str) -> str:
    """What stands in one place of a program's screen, and takes no more room than that."""
    return text if text.isprintable() else "".join(c for c in text if c.isprintable()) or " "


def to_safe_line(text: str) -> str:
    """On one line."""
    return escape_prose(" ".join(text.split()))


def clean_program_output(text: str) -> str:
    """What a program wrote for a terminal: without its colours, and each line as it stood at its end."""
    plain = _ESCAPE.sub("", text).replace("\r\n", "\n")
    if "\r" in plain:
        plain = "\n".join(_keep_last_written(row) for row in plain.split("\n"))
    return escape_prose(plain.replace("\b", ""))


def _keep_last_written(row: str) -> str:
    """A line that was written over shows its last version."""
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
        return chr(0x2400 + number)  # its picture
    if number == 0x7F:
        return "␡"
    return characters.format_code_point(character)
