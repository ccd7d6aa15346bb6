"""Reads passwords and keys: from stdin, or hidden from the user at the terminal. No error repeats what was given."""

import getpass
import sys

import click

from switchtower.cli import keyboard

LONGEST_KEY = 16_384
_LONGEST_PASSWORD = 4_096


def read_password(*, from_stdin: bool) -> str:
    """At a terminal it is asked for twice."""
    if from_stdin:
        given = sys.stdin.buffer.read(_LONGEST_PASSWORD + 1)
        return _checked_password(given.removesuffix(b"\n").removesuffix(b"\r"))
    if not keyboard.is_possible():
        raise click.UsageError("there is no terminal to ask for the password at; hint: give it with `--password-stdin`")
    typed = _ask("Password: ")
    if _ask("The same again: ") != typed:
        raise click.ClickException("the two passwords differ; hint: try again, nothing was changed")
    return _checked_password(typed.encode(errors="surrogateescape"))


def _ask(question: str) -> str:
    try:
        return getpass.getpass(question, stream=sys.stderr)
    except EOFError:
        raise click.Abort from None


def _checked_password(given: bytes) -> str:
    if not given:
        raise click.UsageError("the password is empty; hint: give one of at least 8 characters")
    if len(given) > _LONGEST_PASSWORD:
        raise click.UsageError(f"the password is longer than {_LONGEST_PASSWORD} bytes; hint: give a shorter one")
    try:
        return given.decode()
    except UnicodeDecodeError:
        # The error itself would quote it.
        raise click.UsageError("the password is not UTF-8; hint: give it as UTF-8 text") from None


def read_key(prompt: str) -> str:
    given = _ask(prompt) if keyboard.is_possible() else sys.stdin.buffer.read(LONGEST_KEY + 2).decode("utf-8", "replace")
    key = given.strip()
    if not key:
        raise click.UsageError("no key was given; hint: paste it, or pipe it in")
    if len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise click.UsageError("this is not a key; hint: give one line of plain text, and nothing else")
    return key
