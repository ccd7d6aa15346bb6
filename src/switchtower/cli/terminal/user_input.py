"""Input from the user at the terminal: lines, passwords and keys, one question at a time, and texts from the user's editor.

It prints only prompts, and no error repeats a secret. The editor's file is private and is removed, unless the question is closed
before the editor exits: then the text is kept and its path is shown.
"""

import asyncio
import getpass
import os
import shlex
import shutil
import sys
import tempfile
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import click

from switchtower.cli import console


def is_interactive() -> bool:
    return os.isatty(0) and os.isatty(2)


def discard_typeahead() -> None:
    """Discards input that was typed before the question appeared."""
    with suppress(termios.error):
        termios.tcflush(0, termios.TCIFLUSH)


async def read_line(prompt: str) -> str | None:
    """Reads a whole line. None is the end of input: Ctrl-D, or a closed terminal."""
    console.print_piece(prompt)
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        if arrived.done():
            return
        try:
            arrived.set_result(os.read(0, 4_096))
        except OSError:  # the terminal was closed
            arrived.set_result(b"")

    loop.add_reader(0, read)
    try:
        typed = await arrived
    except asyncio.CancelledError:
        # A partial answer to a withdrawn question must not become the start of the next answer.
        discard_typeahead()
        raise
    finally:
        loop.remove_reader(0)
    if typed.endswith(b"\n"):
        console.mark_line_ended()
    return typed.decode(errors="replace").removesuffix("\n") if typed else None


class TerminalQuestion(Protocol):
    @property
    def id(self) -> str: ...

    async def ask(self, *, again: bool) -> None:
        """Asks until there is an answer; it is cancelled when the question is withdrawn. `again` means that other questions were
        asked since this one was shown."""

    async def send_answer(self) -> None:
        """Sends the answer. It is never cancelled, because the user has already answered."""


class QuestionQueue:
    def __init__(self) -> None:
        self._known: set[str] = set()
        self._waiting: dict[str, TerminalQuestion] = {}
        self._current: tuple[str, asyncio.Task[None]] | None = None
        self._task: asyncio.Task[None] | None = None

    def enqueue(self, question: TerminalQuestion) -> None:
        """Queues the question once, however often it is added."""
        if question.id in self._known:
            return
        self._known.add(question.id)
        self._waiting[question.id] = question
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._ask_waiting())

    def withdraw(self, question_id: str) -> None:
        """Withdraws a question. An answer that was already given is still sent."""
        self._waiting.pop(question_id, None)
        if self._current is not None and self._current[0] == question_id:
            self._current[1].cancel()

    def withdraw_all(self) -> None:
        for question_id in [*self._waiting, *([self._current[0]] if self._current else [])]:
            self.withdraw(question_id)

    async def close(self) -> None:
        self.withdraw_all()
        if (work := self._task) is not None:
            await asyncio.wait({work})
            work.result()

    async def _ask_waiting(self) -> None:
        again = False
        try:
            while self._waiting:
                question = self._waiting.pop(next(iter(self._waiting)))
                putting = asyncio.create_task(question.ask(again=again))
                self._current = (question.id, putting)
                try:
                    await asyncio.wait({putting})
                finally:
                    self._current = None
                    putting.cancel()
                if not putting.cancelled():
                    putting.result()
                    await question.send_answer()
                again = True
        finally:
            self._task = None


MAX_KEY_CHARS = 16_384
_MAX_PASSWORD_CHARS = 4_096


def read_password(*, from_stdin: bool) -> str:
    """Reads a password; at a terminal it asks twice."""
    if from_stdin:
        given = sys.stdin.buffer.read(_MAX_PASSWORD_CHARS + 1)
        return _check_password(given.removesuffix(b"\n").removesuffix(b"\r"))
    if not is_interactive():
        raise click.UsageError("there is no terminal to ask for the password at; hint: give it with `--password-stdin`")
    typed = _ask_hidden("Password: ")
    if _ask_hidden("The same again: ") != typed:
        raise click.ClickException("the two passwords differ; hint: try again, nothing was changed")
    return _check_password(typed.encode(errors="surrogateescape"))


def _ask_hidden(question: str) -> str:
    try:
        return getpass.getpass(question, stream=sys.stderr)
    except EOFError:
        raise click.Abort from None


def _check_password(given: bytes) -> str:
    if not given:
        raise click.UsageError("the password is empty; hint: give one of at least 8 characters")
    if len(given) > _MAX_PASSWORD_CHARS:
        raise click.UsageError(f"the password is longer than {_MAX_PASSWORD_CHARS} bytes; hint: give a shorter one")
    try:
        return given.decode()
    except UnicodeDecodeError:
        # The original error would quote the password.
        raise click.UsageError("the password is not UTF-8; hint: give it as UTF-8 text") from None


def read_key(prompt: str) -> str:
    given = _ask_hidden(prompt) if is_interactive() else sys.stdin.buffer.read(MAX_KEY_CHARS + 2).decode("utf-8", "replace")
    key = given.strip()
    if not key:
        raise click.UsageError("no key was given; hint: paste it, or pipe it in")
    if len(key) > MAX_KEY_CHARS or not key.isascii() or not key.isprintable() or " " in key:
        raise click.UsageError("this is not a key; hint: give one line of plain text, and nothing else")
    return key


_MAX_EDITED_BYTES = 4 * 1024 * 1024
"""The maximum size of an edited text: more than any answer may have."""
_EXIT_TIMEOUT = 2.0
"""Seconds that an editor may take to exit after a signal."""


class EditorError(Exception):
    """The editor could not be started, or it failed."""


def find_editor(environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """Returns `$VISUAL`, or else `$EDITOR`; None when neither is set or can be parsed."""
    for name in ("VISUAL", "EDITOR"):
        with suppress(ValueError):
            if words := shlex.split(environment.get(name, "")):
                return words
    return None


async def edit_text(words: list[str], text: str) -> str:
    """Returns the edited text. Raises `EditorError`."""
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
    # stdin or stdout may be a pipe; an editor needs the terminal, and stderr is one.
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
