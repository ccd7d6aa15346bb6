"""Changes the configuration file, directly or in the user's editor: a change is checked exactly as a start would, then written
atomically, readable by the owner only.

The editor works on a copy, which replaces the file only if a daemon could start with it.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from switchtower import config
from switchtower.cli import console
from switchtower.cli.configuration import toml_text as texts
from switchtower.settings.parsers import Setting
from switchtower.settings.sources import SECTIONS, ConfigError

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
    change_file(file, lambda before: texts.set_key(_validate(before, file), setting.name, texts.encode_value(value), SECTIONS))


def unset_value(file: Path, name: str) -> bool:
    """Removes a name and returns whether the file had it. Unknown names can be removed too, because they may be the problem."""
    found = False

    def edit(before: str) -> str:
        nonlocal found
        after = texts.remove_key(_validate(before, file), name, SECTIONS)
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
