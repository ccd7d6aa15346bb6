"""Reads a key: from stdin where that is no terminal, else hidden from the person at it. Never shows it."""

import getpass
import sys

import click

from switchtower.cli import keyboard

LONGEST_KEY = 16_384


def read_key(prompt: str) -> str:
    """Raises `UsageError`, which never repeats what was given."""
    if keyboard.is_possible():
        try:
            return _checked(getpass.getpass(prompt, stream=sys.stderr))
        except EOFError:
            raise click.Abort from None
    return _checked(sys.stdin.buffer.read(LONGEST_KEY + 2).decode("utf-8", "replace"))


def _checked(given: str) -> str:
    key = given.strip()
    if not key:
        raise click.UsageError("no key was given; hint: paste it, or pipe it in")
    if len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise click.UsageError("this is not a key; hint: give one line of plain text, and nothing else")
    return key
