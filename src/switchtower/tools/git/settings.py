"""Reads git's configuration files without running git: they may have been written by a command that is not trusted."""

import re
from collections.abc import Iterator

from msgspec import Struct

_HEADER = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]')
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_ESCAPED = {"n": "\n", "t": "\t", "b": "\b", '"': '"', "\\": "\\"}


class InvalidGitConfig(ValueError):
    """The text is not a configuration that git would take."""


class GitSetting(Struct, frozen=True):
    section: str
    """In small letters."""
    subsection: str | None
    name: str
    """In small letters."""
    value: str | None
    """None for a name alone, which git takes for true."""

    @property
    def key(self) -> str:
        """With `*` for what is between the first and the last dot."""
        return f"{self.section}.{self.name}" if self.subsection is None else f"{self.section}.*.{self.name}"


def parse_settings(text: str) -> list[GitSetting]:
    """Raises `Unreadable`."""
    return list(_iterate_settings(text.removeprefix("\ufeff").replace("\r\n", "\n")))


def format_settings(settings: list[GitSetting]) -> str:
    """A configuration with these, which git reads as they were."""
    lines: list[str] = []
    for setting in settings:
        header = setting.section if setting.subsection is None else f'{setting.section} "{_escape(setting.subsection)}"'
        lines.append(f"[{header}]")
        if setting.value is None:
            lines.append(f"\t{setting.name}")
        else:
            value = _escape(setting.value).replace("\n", "\\n").replace("\t", "\\t").replace("\b", "\\b")
            lines.append(f'\t{setting.name} = "{value}"')
    return "".join(f"{line}\n" for line in lines)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _iterate_settings(text: str) -> Iterator[GitSetting]:
    section: tuple[str, str | None] | None = None
    place = 0
    while place < len(text):
        character = text[place]
        if character.isspace():
            place += 1
        elif character in "#;":
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
        elif character == "[":
            header = _HEADER.match(text, place)
            if header is None:
                raise InvalidGitConfig(f"a section's name cannot be read: {text[place : place + 40]!r}")
            name, quoted = header.groups()
            first, dot, rest = name.partition(".")
            between = rest.lower() if dot else None if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            section = (first.lower(), between)
            place = header.end()
        else:
            found = _NAME.match(text, place)
            if found is None or section is None:
                raise InvalidGitConfig(f"a setting's name cannot be read: {text[place : place + 40]!r}")
            value, place = _read_value(text, found.end())
            yield GitSetting(*section, found.group().lower(), value)


def _read_value(text: str, place: int) -> tuple[str | None, int]:
    """The value that begins behind a name, and where it ends."""
    while place < len(text) and text[place] in " \t":
        place += 1
    if place >= len(text) or text[place] in "\n#;":
        return None, place
    if text[place] != "=":
        raise InvalidGitConfig(f"a setting's value cannot be read: {text[place : place + 40]!r}")
    place += 1
    pieces: list[str] = []
    spaces = ""
    is_quoted = False
    while place < len(text):
        character = text[place]
        if character == "\n":
            break
        if character in "#;" and not is_quoted:
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
            break
        place += 1
        if character in " \t" and not is_quoted:
            spaces += character if pieces else ""
            continue
        if character == "\\":
            follows = text[place : place + 1]
            place += 1
            if follows == "\n":
                continue
            if follows not in _ESCAPED:
                raise InvalidGitConfig(f"`\\{follows}` means nothing in a value")
            character = _ESCAPED[follows]
        elif character == '"':
            is_quoted = not is_quoted
            character = ""
        pieces.append(spaces + character)
        spaces = ""
    if is_quoted:
        raise InvalidGitConfig("a quotation mark is missing")
    return "".join(pieces), place
