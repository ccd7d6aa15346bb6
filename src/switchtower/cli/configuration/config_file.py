"""Changes the configuration file, directly or in the user's editor: a change is checked exactly as a start would, then written
atomically, readable by the owner only.

The editor works on a copy, which replaces the file only if a daemon could start with it.

Edits the text of the configuration file: it sets or removes one key and keeps everything else unchanged. Pure.

A key is at the top level, or in one of the sections that only group settings: `webhook` in `[notify]` is `notify_webhook`. The
caller has checked that the text is valid TOML, so this module only finds where things start and end."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import NamedTuple

import click

from switchtower import config
from switchtower.cli import console
from switchtower.settings.parsers import Setting
from switchtower.settings.sources import SECTIONS, ConfigError

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


MAX_FILE_BYTES = 4 * 1024 * 1024


def check_config(content: str, file: Path) -> config.Settings:
    """Returns the settings that a daemon would start with from this file alone. Raises `ConfigError`, which names the file."""
    _validate(content, file)
    with tempfile.TemporaryDirectory(prefix="tower-config-") as folder:
        place = Path(folder) / "switchtower"
        place.mkdir(mode=0o700)
        copy = place / "config.toml"
        copy.write_bytes(content.encode())
        try:
            # The environment has none of our variables: one of them would hide the file's value from the check.
            settings = config.load(environ={"HOME": "/", "XDG_CONFIG_HOME": folder})
            _check_tables(settings)
        except ConfigError as problem:
            source = problem.source.replace(str(copy), str(file))
            raise ConfigError(problem.setting, source, problem.problem, hint=problem.hint) from None
    return settings


def change_file(file: Path, edit: Callable[[str], str]) -> None:
    """Raises `ConfigError` and changes nothing when a daemon could not start with the result."""
    with _hold_lock(file.parent):
        before = read_file(file)
        after = edit(before)
        check_config(after, file)
        if after != before or not file.exists():
            write_file(file, after)


def set_value(file: Path, setting: Setting, value: object) -> None:
    """Sets one value, which already has the setting's type."""
    change_file(file, lambda before: set_key(_validate(before, file), setting.name, encode_value(value), SECTIONS))


def unset_value(file: Path, name: str) -> bool:
    """Removes a name and returns whether the file had it. Unknown names can be removed too, because they may be the problem."""
    found = False

    def edit(before: str) -> str:
        nonlocal found
        after = remove_key(_validate(before, file), name, SECTIONS)
        found = after != before
        return after

    if file.exists():
        change_file(file, edit)
    return found


def read_file(file: Path) -> str:
    """Returns the file's text; empty when it does not exist."""
    try:
        with file.open("rb") as content:
            raw = content.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError as problem:
        raise _make_error(file, problem.strerror or "cannot be read", "make the file readable or remove it") from None
    if len(raw) > MAX_FILE_BYTES:
        raise _make_error(file, f"it is longer than {MAX_FILE_BYTES} bytes", "see what it is")
    try:
        return raw.decode()
    except UnicodeDecodeError as problem:
        raise _make_error(file, f"not valid TOML: {problem}", "correct that line") from None


def write_file(file: Path, content: str) -> None:
    """Writes the file atomically. A symbolic link stays, and its target is replaced."""
    target = file.resolve()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content.encode())
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


def _validate(content: str, file: Path) -> str:
    import tomllib

    try:
        tomllib.loads(content)
    except tomllib.TOMLDecodeError as problem:
        raise _make_error(file, f"not valid TOML: {problem}", "correct that line with `tower config edit`") from None
    except RecursionError:
        raise _make_error(file, "it is nested too deep", "see what it is") from None
    return content


def _check_tables(settings: config.Settings) -> None:
    """Checks the tables that other packages parse."""
    from switchtower.core import policy
    from switchtower.models import entries

    list(entries.parse_config_entries(settings.models))
    try:
        policy.parse_rules(settings.rules)
    except ValueError as problem:
        raise ConfigError(
            "rules", f"`{settings.config_file}`", str(problem), hint="see docs/policy.md for the form of a rule"
        ) from None


def _make_error(file: Path, problem: str, hint: str) -> ConfigError:
    return ConfigError(file.name, f"`{file}`", problem, hint=hint)


@contextmanager
def _hold_lock(folder: Path) -> Iterator[None]:
    """Serialises two concurrent changes: the second one applies to the result of the first."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


_INITIAL_CONTENT = """\
# Switchtower's settings. `tower config show` lists them all, docs/configuration.md explains them.
"""


class EditRejected(Exception):
    """The edited file was rejected; the message has the reason and a remedy."""


def edit_in_editor(file: Path) -> bool:
    """Returns whether the file was changed. Raises `EditRejected`, or `OSError` when it cannot be written."""
    from switchtower.cli.terminal import user_input

    words = user_input.find_editor() or _find_default_editor()
    if words is None:
        raise EditRejected("no editor is known; hint: set `EDITOR`, such as `EDITOR=nano`")
    before = read_file(file)
    folder = Path(tempfile.mkdtemp(prefix="tower-config-"))  # for the owner only
    copy = folder / "config.toml"
    offered = before or _INITIAL_CONTENT
    copy.write_bytes(offered.encode())
    kept = False
    try:
        while True:
            _run_editor(words, copy)
            after = read_file(copy)
            if after == offered:
                return False
            kept = True
            try:
                check_config(after, file)
                break
            except ConfigError as problem:
                console.print_error(str(problem).replace(str(copy), str(file)))
                if not (sys.stdin.isatty() and sys.stderr.isatty() and click.confirm("Edit it again?", default=True, err=True)):
                    raise EditRejected(f"the file is as it was; hint: what you wrote is kept in `{copy}`") from None
        if read_file(file) != before:
            raise EditRejected(f"the file was changed meanwhile and is left so; hint: what you wrote is kept in `{copy}`")
        write_file(file, after)
        kept = False
        return True
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def _find_default_editor() -> list[str] | None:
    return next(([program] for program in ("nano", "vi") if shutil.which(program)), None)


def _run_editor(words: list[str], file: Path) -> None:
    # stdout is for data; an editor needs the terminal, and stderr is one.
    try:
        ended = subprocess.run([*words, os.fspath(file)], stdout=sys.stderr.fileno(), check=False)  # noqa: S603
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise EditRejected(f"cannot start `{words[0]}`: {reason}; hint: set `EDITOR` to another one") from None
    if ended.returncode != 0:
        raise EditRejected(
            f"`{words[0]}` ended with {ended.returncode}, so the file is as it was; hint: what you wrote is in `{file}`"
        )
