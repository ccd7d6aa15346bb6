"""Arguments and options that several commands share.

This module loads click but no protocol, and it loads the settings only for an option that needs them.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

ROLES = ("viewer", "approver", "operator", "admin")
THINKING = ("off", "minimal", "low", "medium", "high", "xhigh")

Command = TypeVar("Command", bound=Callable[..., Any])


def read_message(text: str) -> str:
    """Returns the message; `-` reads it from stdin. Invalid UTF-8 becomes replacement characters, because the wire carries only
    valid text."""
    if text == "-":
        text = sys.stdin.buffer.read().decode(errors="replace")
    if not text.strip():
        raise click.UsageError("TEXT is empty")
    return make_sendable(text)


def make_sendable(text: str) -> str:
    return text.encode(errors="surrogateescape").decode(errors="replace")


def validate_sendable(ctx: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """A click callback that rejects an empty text and makes it valid for the wire."""
    if text is not None and not text.strip():
        raise click.BadParameter("it is empty", ctx, parameter)
    return None if text is None else make_sendable(text)


def amount_option(
    flag: str, metavar: str, help: str, *, maximum: int = 10**9, whole: bool = False
) -> Callable[[Command], Command]:
    """Declares an option for a number above 0. The maximum also rejects nearly infinite numbers, which the daemon would receive
    as no limit or not at all."""

    def read(ctx: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
        if text is None:
            return None
        try:
            number = int(text) if whole else float(text)
        except ValueError:
            raise click.BadParameter(f"`{text}` is not a {'whole ' if whole else ''}number", ctx, parameter) from None
        if not 0 < number <= maximum:  # this also rejects `nan`
            raise click.BadParameter(f"`{text}` is not above 0 and at most {maximum}", ctx, parameter)
        return number

    return click.option(flag, metavar=metavar, callback=read, help=help)


def folder_option(help: str) -> Callable[[Command], Command]:
    """Declares `--cwd`, which the command receives as `folder`."""
    exists = click.Path(exists=True, file_okay=False, path_type=Path)
    return click.option("--cwd", "folder", type=exists, default=".", metavar="DIR", help=help)


def policy_option(help: str) -> Callable[[Command], Command]:
    from switchtower.config import POLICIES

    return _choice_option("--policy", "PROFILE", POLICIES, help)


def sandbox_option(help: str) -> Callable[[Command], Command]:
    from switchtower.config import SANDBOXES

    return _choice_option("--sandbox", "NAME", SANDBOXES, help)


def thinking_option(help: str) -> Callable[[Command], Command]:
    return _choice_option("--thinking", "LEVEL", THINKING, help)


def _choice_option(flag: str, metavar: str, choices: tuple[str, ...], help: str) -> Callable[[Command], Command]:
    return click.option(flag, type=click.Choice(choices), metavar=metavar, help=f"{help} ({', '.join(choices)}).")


def text_option(flag: str, help: str) -> Callable[[Command], Command]:
    return click.option(flag, metavar="NAME", callback=validate_sendable, help=help)


def token_option(command: Command) -> Command:
    return click.option("--token", metavar="TOKEN", help="The session's attach token, where the daemon asks for it.")(command)
