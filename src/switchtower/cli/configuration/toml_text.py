"""Edits the text of the configuration file: it sets or removes one key and keeps everything else unchanged. Pure.

A key is at the top level, or in one of the sections that only group settings: `webhook` in `[notify]` is `notify_webhook`. The
caller has checked that the text is valid TOML, so this module only finds where things start and end.
"""

import re
from collections.abc import Collection, Iterator
from pathlib import PurePath
from typing import NamedTuple

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_QUOTES = ('"""', "'''", '"', "'")
_CLOSING = {"[": "]", "{": "}"}


class TomlAssignment(NamedTuple):
    """`key = value`, with its positions in the text."""

    key: str
    """The full name, prefixed with the section."""
    section: str | None
    start: int
    """The start of its line."""
    value_start: int
    value_end: int
    end: int
    """The position after its line end."""


def encode_value(value: object) -> str:
    """Encodes a setting's value as TOML."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
        case tuple() | list():
            return f"[{', '.join(encode_value(part) for part in value)}]"
        case str() | PurePath():
            return '"' + "".join(_escape_character(character) for character in str(value)) + '"'
        case _:
            raise TypeError(f"no setting is a {type(value).__name__}")


def set_key(text: str, key: str, encoded: str, sections: Collection[str] = ()) -> str:
    """Sets the key to this value: in its old place, or after the last top-level key."""
    found = list(parse_assignments(text, sections))
    for statement in found:
        if statement.key == key:
            return text[: statement.value_start] + encoded + text[statement.value_end :]
    at_the_top = [statement for statement in found if statement.section is None]
    line_end = "\r\n" if "\r\n" in text else "\n"
    place = at_the_top[-1].end if at_the_top else _find_first_table(text)
    before, behind = text[:place], text[place:]
    if before and not before.endswith("\n"):
        before += line_end
    gap = line_end if not at_the_top and behind.strip() and not behind.startswith(("\n", "\r\n")) else ""
    return f"{before}{key} = {encoded}{line_end}{gap}{behind}"


def remove_key(text: str, key: str, sections: Collection[str] = ()) -> str:
    """Removes the key's line. Comments above it stay, because they may be about more than this key."""
    for statement in parse_assignments(text, sections):
        if statement.key == key:
            return text[: statement.start] + text[statement.end :]
    return text


def parse_assignments(text: str, sections: Collection[str] = ()) -> Iterator[TomlAssignment]:
    """Yields the assignments of the top level and of the sections in order. It skips other tables and dotted keys of them."""
    section: str | None = None
    elsewhere = False
    place = 0
    while place < len(text):
        line_start = place
        place = _skip_characters(text, place, " \t")
        if place >= len(text):
            return
        if text[place] in "\r\n#":
            place = _find_line_end(text, place)
            continue
        if text[place] == "[":
            end, parts = _parse_key(text, place + 1, "]")
            section = parts[0] if len(parts) == 1 and parts[0] in sections and not text.startswith("[[", place) else None
            elsewhere = section is None
            place = _find_line_end(text, end)
            continue
        equals, parts = _parse_key(text, place, "=")
        value_start = _skip_characters(text, equals + 1, " \t")
        value_end = _find_value_end(text, value_start)
        place = _find_line_end(text, value_end)
        inside = section
        if inside is None and len(parts) == 2 and parts[0] in sections:
            inside, parts = parts[0], parts[1:]  # `notify.webhook = …` at the top level
        if len(parts) == 1 and not elsewhere:
            name = parts[0] if inside is None else f"{inside}_{parts[0]}"
            yield TomlAssignment(name, inside, line_start, value_start, value_end, place)


def _parse_key(text: str, place: int, until: str) -> tuple[int, list[str]]:
    """Returns the end position and the parts of a key or of a table's name."""
    parts: list[str] = []
    while text[place] != until:
        if text[place] in "\"'":
            end = _find_string_end(text, place)
            parts.append(text[place + 1 : end - 1])
        elif bare := _BARE_KEY.match(text, place):
            parts.append(bare[0])
            end = bare.end()
        else:
            end = place + 1
        place = end
    return place, parts


def _find_value_end(text: str, place: int) -> int:
    if text[place] in "\"'":
        return _find_string_end(text, place)
    if text[place] in _CLOSING:
        return _find_bracket_end(text, place)
    end = re.compile(r"[#\r\n]").search(text, place)
    return place + len(text[place : end.start() if end else len(text)].rstrip(" \t"))


def _find_bracket_end(text: str, place: int) -> int:
    open_brackets = 0
    while True:
        character = text[place]
        if character in "\"'":
            place = _find_string_end(text, place)
            continue
        if character == "#":
            place = _find_line_end(text, place)
            continue
        open_brackets += (character in "[{") - (character in "]}")
        place += 1
        if not open_brackets:
            return place


def _find_string_end(text: str, place: int) -> int:
    quote = next(quote for quote in _QUOTES if text.startswith(quote, place))
    place += len(quote)
    while not text.startswith(quote, place):
        place += 2 if quote[0] == '"' and text[place] == "\\" else 1
    place += len(quote)
    if len(quote) == 3:
        # Up to two more quotes belong to the text itself.
        while text.startswith(quote[0], place):
            place += 1
    return place


def _find_first_table(text: str) -> int:
    """Returns the position above the comments directly before the first table."""
    lines = text.splitlines(keepends=True)
    first = next((index for index, line in enumerate(lines) if line.lstrip(" \t").startswith("[")), len(lines))
    if first == len(lines):
        return len(text)
    while first and lines[first - 1].lstrip(" \t").startswith("#"):
        first -= 1
    return sum(map(len, lines[:first]))


def _skip_characters(text: str, place: int, characters: str) -> int:
    while place < len(text) and text[place] in characters:
        place += 1
    return place


def _find_line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end + 1


def _escape_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    return f"\\u{code:04X}" if code < 0x20 or code == 0x7F else character
