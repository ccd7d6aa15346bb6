"""The person's own editor on a text, in place of the screen until it is left. Its file is private and removed, except when
the question is over before the editor was left: then what was written is kept and named."""

import asyncio
import os
import shlex
import shutil
import sys
import tempfile
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from switchtower.cli import console

_MAX_EDITED_BYTES = 4 * 1024 * 1024
"""More than any answer may have, and no more than we want to hold."""
_EXIT_TIMEOUT = 2.0
"""Seconds that an editor may take to leave when it is told to."""


class EditorError(Exception):
    """The editor could not be started, or it failed."""


def find_editor(environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """`$VISUAL`, or else `$EDITOR`; None where neither is set or can be read."""
    for name in ("VISUAL", "EDITOR"):
        with suppress(ValueError):
            if words := shlex.split(environment.get(name, "")):
                return words
    return None


async def edit_text(words: list[str], text: str) -> str:
    """The text as the person left it. Raises `CannotEdit`."""
    folder = Path(tempfile.mkdtemp(prefix="tower-"))
    file = folder / "answer.md"
    kept = False
    try:
        file.write_bytes(text.encode(errors="replace"))
        try:
            await _run_editor([*words, str(file)])
        except asyncio.CancelledError:
            with suppress(OSError):
                kept = _read_result(file) not in (b"", text.encode(errors="replace"))
            if kept:
                console.print_line(f"the question is over; what you wrote is in {file}", "yellow")
            raise
        try:
            return _read_result(file).decode(errors="replace")
        except OSError as problem:
            raise EditorError(f"cannot read what `{words[0]}` wrote: {problem.strerror}") from None
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def _read_result(file: Path) -> bytes:
    with file.open("rb") as content:
        return content.read(_MAX_EDITED_BYTES)


async def _run_editor(words: list[str]) -> None:
    console.end_line()
    # The answer's own streams may be a pipe; an editor needs the terminal, and stderr is one.
    terminal = sys.stderr.fileno()
    before = None
    with suppress(termios.error):
        before = termios.tcgetattr(terminal)
    try:
        process = await asyncio.create_subprocess_exec(*words, stdin=0, stdout=terminal, stderr=terminal)
    except (OSError, ValueError) as problem:
        raise EditorError(f"cannot start `{words[0]}`: {getattr(problem, 'strerror', None) or problem}") from None
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        await _end_process(process)
        if before is not None:
            with suppress(termios.error):
                termios.tcsetattr(terminal, termios.TCSANOW, before)
        raise
    if code != 0:
        raise EditorError(f"`{words[0]}` ended with {code}")


async def _end_process(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _EXIT_TIMEOUT)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
