"""A change of the configuration file: checked exactly as a start would, then written whole or not at all, for the owner alone."""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from switchtower import config
from switchtower.cli.configuring import text as texts

MAX_FILE_BYTES = 4 * 1024 * 1024


def check_config(content: str, file: Path) -> config.Settings:
    """The settings that a daemon would start with from this file alone. Raises `ConfigError`, which names the file."""
    _validate(content, file)
    with tempfile.TemporaryDirectory(prefix="tower-config-") as folder:
        place = Path(folder) / "switchtower"
        place.mkdir(mode=0o700)
        copy = place / "config.toml"
        copy.write_bytes(content.encode())
        try:
            # Without our variables: one of them would hide the file's own value from being read.
            settings = config.load(environ={"HOME": "/", "XDG_CONFIG_HOME": folder})
            _check_tables(settings)
        except config.ConfigError as problem:
            source = problem.source.replace(str(copy), str(file))
            raise config.ConfigError(problem.setting, source, problem.problem, hint=problem.hint) from None
    return settings


def change_file(file: Path, edit: Callable[[str], str]) -> None:
    """Raises `ConfigError` when the outcome could not be started with; then nothing is changed."""
    with _hold_lock(file.parent):
        before = read_file(file)
        after = edit(before)
        check_config(after, file)
        if after != before or not file.exists():
            write_file(file, after)


def set_value(file: Path, setting: config.Setting, value: object) -> None:
    """`value` is the setting's own type already."""
    change_file(
        file, lambda before: texts.set_key(_validate(before, file), setting.name, texts.encode_value(value), config.SECTIONS)
    )


def unset_value(file: Path, name: str) -> bool:
    """Whether it was there. A name that no setting has can be taken out too: that may be what is wrong with the file."""
    found = False

    def edit(before: str) -> str:
        nonlocal found
        after = texts.remove_key(_validate(before, file), name, config.SECTIONS)
        found = after != before
        return after

    if file.exists():
        change_file(file, edit)
    return found


def read_file(file: Path) -> str:
    """Empty when there is none."""
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
    """Behind a link the file that it names is written, and the link stays."""
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
    """The parts that the rooms read which use them."""
    from switchtower.core import policy
    from switchtower.models import entries

    list(entries.parse_config_entries(settings.models))
    try:
        policy.parse_rules(settings.rules)
    except ValueError as problem:
        raise config.ConfigError(
            "rules", f"`{settings.config_file}`", str(problem), hint="see docs/policy.md for the form of a rule"
        ) from None


def _make_error(file: Path, problem: str, hint: str) -> config.ConfigError:
    return config.ConfigError(file.name, f"`{file}`", problem, hint=hint)


@contextmanager
def _hold_lock(folder: Path) -> Iterator[None]:
    """Of two changes at once, the second is made to what the first has left."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
