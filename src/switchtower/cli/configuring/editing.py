"""The configuration file in the person's own editor: on a copy, which is taken over when a daemon could start with it."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from switchtower import config
from switchtower.cli import console
from switchtower.cli.configuring import changing

_INITIAL_CONTENT = """\
# Switchtower's settings. `tower config show` lists them all, docs/configuration.md explains them.
"""


class EditRejected(Exception):
    """Why the file is as it was, with a remedy."""


def edit_in_editor(file: Path) -> bool:
    """Whether the file was changed. Raises `NotTaken`, or `OSError` when it cannot be written."""
    from switchtower.cli import editor

    words = editor.find_editor() or _find_default_editor()
    if words is None:
        raise EditRejected("no editor is known; hint: set `EDITOR`, such as `EDITOR=nano`")
    before = changing.read_file(file)
    folder = Path(tempfile.mkdtemp(prefix="tower-config-"))  # for the owner alone
    copy = folder / "config.toml"
    offered = before or _INITIAL_CONTENT
    copy.write_bytes(offered.encode())
    kept = False
    try:
        while True:
            _run_editor(words, copy)
            after = changing.read_file(copy)
            if after == offered:
                return False
            kept = True
            try:
                changing.check_config(after, file)
                break
            except config.ConfigError as problem:
                console.print_error(str(problem).replace(str(copy), str(file)))
                if not (sys.stdin.isatty() and sys.stderr.isatty() and click.confirm("Edit it again?", default=True, err=True)):
                    raise EditRejected(f"the file is as it was; hint: what you wrote is kept in `{copy}`") from None
        if changing.read_file(file) != before:
            raise EditRejected(f"the file was changed meanwhile and is left so; hint: what you wrote is kept in `{copy}`")
        changing.write_file(file, after)
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
