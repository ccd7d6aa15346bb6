"""Owns stderr and the exit codes: everything that users read, except the answer itself, is written here."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import Any, NoReturn

import click

from switchtower.cli import output


class ExitStatus(IntEnum):
    """push, Headless Mode Semantics: 0 to 4. A usage error has its own code, so that scripts do not take it for a cancelled
    run."""

    OK = 0
    FAILED = 1
    CANCELLED = 2
    DENIED = 3
    ACCEPTANCE_FAILED = 4
    USAGE = 64
    TIMED_OUT = 124
    """`--timeout` has passed; the same code as coreutils' `timeout`."""
    NOT_STARTED = 127
    """The program does not exist; the same code as a shell's."""
    OUTPUT_CLOSED = 141
    """The reader closed stdout, for example `| head`; the code that a shell reports for a program killed by SIGPIPE."""


_COLOURS = {"dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


_middle_of_line = False


def print_line(line: str, colour: str | None = None) -> None:
    """Prints one line for the user."""
    output.end_terminal_line()
    end_line()
    _write(_paint_for_stderr(escape_unprintable(line), colour) + "\n")


def print_piece(text: str, colour: str | None = None) -> None:
    """Prints a piece of streamed text; the next message starts on a new line."""
    global _middle_of_line
    if not text:
        return
    if not _middle_of_line:
        output.end_terminal_line()
    body = text.rstrip("\n")
    _middle_of_line = body == text
    _write(_paint_for_stderr(escape_unprintable(body), colour) + text[len(body) :])


def end_line() -> None:
    if _middle_of_line:
        mark_line_ended()
        _write("\n")


def mark_line_ended() -> None:
    """Records that the user ended the line by pressing Enter."""
    global _middle_of_line
    _middle_of_line = False


def _paint_for_stderr(text: str, colour: str | None) -> str:
    return paint(text, colour) if text and colour is not None and supports_colour(sys.stderr.fileno()) else text


def _write(text: str) -> None:
    with suppress(OSError):  # stderr may be closed: everything important goes to stdout or into the exit code
        print(text, end="", file=sys.stderr, flush=True)


def write_program_output(text: str) -> None:
    """Writes a program's terminal output unchanged to stderr, because stdout carries something else."""
    with suppress(OSError):
        sys.stderr.buffer.write(text.encode(errors="replace"))
        sys.stderr.buffer.flush()


def print_error(message: str, hint: str | None = None) -> None:
    """Prints an error and its remedy on one line."""
    print_line(f"tower: {message}; hint: {hint}" if hint else f"tower: {message}", "red")


def escape_unprintable(text: str) -> str:
    """Escapes invisible characters: external text must not control the terminal or hide a part of itself."""
    from switchtower.core import characters

    return characters.reveal(text, characters.format_escape)


def supports_colour(descriptor: int) -> bool:
    # https://no-color.org: the variable counts if it is set and not empty
    return os.isatty(descriptor) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def run_command_line(call: Callable[[], Any]) -> int:
    """Runs the command line. Every user error becomes one line and an exit code here; a traceback means a bug in this program."""
    try:
        result = call()
        _print_notices()
        return result if isinstance(result, int) else ExitStatus.OK
    except click.UsageError as mistake:
        command = mistake.ctx.command_path if mistake.ctx else "tower"
        message = " ".join(mistake.format_message().split())
        print_line(
            f"{command}: {message.rstrip('.')}" + ("" if "hint: " in message else f"; hint: see `{command} --help`"), "red"
        )
        return ExitStatus.USAGE
    except click.ClickException as mistake:
        print_error(mistake.format_message())
        return ExitStatus.FAILED
    except (click.Abort, KeyboardInterrupt):
        return ExitStatus.CANCELLED
    except output.OutputClosed:
        return ExitStatus.OUTPUT_CLOSED
    except Exception as problem:
        from switchtower.client import errors
        from switchtower.settings.sources import ConfigError

        if not isinstance(problem, errors.ClientError | ConfigError):
            raise
        print_error(str(problem))
        _print_notices()
        return ExitStatus.TIMED_OUT if isinstance(problem, errors.DeadlineExceeded) else ExitStatus.FAILED


def _print_notices() -> None:
    """Prints the notices that a client in this process has collected. It loads nothing if no client was used."""
    client = sys.modules.get("switchtower.client.client")
    if client is not None:
        for notice in sorted(client.notices):
            print_line(notice, "yellow")
        client.notices.clear()


def exit_process(code: int) -> NoReturn:
    if not output.flush():
        code = code or ExitStatus.OUTPUT_CLOSED
    sys.exit(code)
