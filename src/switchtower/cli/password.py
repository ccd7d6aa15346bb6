"""Reads a password: from stdin when told so, else from the person at the terminal, twice and unseen."""

import getpass
import sys

import click

from switchtower.cli import keyboard

_LONGEST = 4_096


def read(*, from_stdin: bool) -> str:
    if from_stdin:
        given = sys.stdin.buffer.read(_LONGEST + 1)
        return _text(given.removesuffix(b"\n").removesuffix(b"\r"))
    if not keyboard.is_possible():
        raise click.UsageError("there is no terminal to ask for the password at; hint: give it with `--password-stdin`")
    typed = _asked("Password: ")
    if _asked("The same again: ") != typed:
        raise click.ClickException("the two passwords differ; hint: try again, nothing was changed")
    return _text(typed.encode(errors="surrogateescape"))


def _asked(question: str) -> str:
    try:
        return getpass.getpass(question, stream=sys.stderr)
    except EOFError:
        raise click.Abort from None


def _text(given: bytes) -> str:
    if not given:
        raise click.UsageError("the password is empty; hint: give one of at least 8 characters")
    if len(given) > _LONGEST:
        raise click.UsageError(f"the password is longer than {_LONGEST} bytes; hint: give a shorter one")
    try:
        return given.decode()
    except UnicodeDecodeError:
        # The error itself would quote it.
        raise click.UsageError("the password is not UTF-8; hint: give it as UTF-8 text") from None
