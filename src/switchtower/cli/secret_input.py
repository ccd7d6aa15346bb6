"""Reads passwords and keys: from stdin, or hidden from the user at the terminal. No error repeats what was given."""

import getpass
import sys

import click

from switchtower.cli import keyboard

MAX_KEY_CHARS = 16_384
_MAX_PASSWORD_CHARS = 4_096


def read_password(*, from_stdin: bool) -> str:
    """At a terminal it is asked for twice."""
    if from_stdin:
        given = sys.stdin.buffer.read(_MAX_PASSWORD_CHARS + 1)
        return _check_password(given.removesuffix(b"\n").removesuffix(b"\r"))
    if not keyboard.is_interactive():
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
        # The error itself would quote it.
        raise click.UsageError("the password is not UTF-8; hint: give it as UTF-8 text") from None


def read_key(prompt: str) -> str:
    given = (
        _ask_hidden(prompt) if keyboard.is_interactive() else sys.stdin.buffer.read(MAX_KEY_CHARS + 2).decode("utf-8", "replace")
    )
    key = given.strip()
    if not key:
        raise click.UsageError("no key was given; hint: paste it, or pipe it in")
    if len(key) > MAX_KEY_CHARS or not key.isascii() or not key.isprintable() or " " in key:
        raise click.UsageError("this is not a key; hint: give one line of plain text, and nothing else")
    return key
