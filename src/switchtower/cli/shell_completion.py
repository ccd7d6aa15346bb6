"""Shell completion of arguments: sessions and models from a running daemon, settings from their table.

It starts nothing, prints nothing, and gives up on an answer that takes too long.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem

from switchtower.settings.sources import ConfigError

if TYPE_CHECKING:
    from switchtower.client.client import DaemonClient

DAEMON_TIMEOUT = 2.0
_MAX_SESSIONS = 200
_MAX_HELP_CHARS = 60

T = TypeVar("T")
CompletionWord = tuple[str, str]
"""A word and its description."""


class CompletedParam(click.types.StringParamType):
    """A string parameter with words that a shell can complete."""

    def __init__(self, offers: Callable[[], Iterable[CompletionWord]]) -> None:
        self._offers = offers

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            offers = list(self._offers())
        except Exception:  # a shell that completes a word must never show a traceback
            return []
        return [CompletionItem(word, help=_clean_text(said)) for word, said in offers if word.startswith(incomplete)]


def install_completions(command: click.Command, path: str = "") -> None:
    """Attaches completions to the arguments of a command and of its subcommands."""
    name = f"{path} {command.name}".strip()
    for parameter in command.params:
        if parameter.type is click.STRING and (offers := _find_completer(name, parameter)) is not None:
            parameter.type = CompletedParam(offers)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            install_completions(below, name)


def _find_completer(command: str, parameter: click.Parameter) -> Callable[[], Iterable[CompletionWord]] | None:
    match command, parameter.name:
        case _, "session" | "session_id" | "sessions":
            return complete_sessions
        case _, "provider":
            return complete_models
        case (("config get" | "config set" | "config unset"), "name"):
            return complete_settings
        case "mcp test", "name":
            return complete_servers
        case _:
            return None


def complete_sessions() -> list[CompletionWord]:
    async def ask(client: "DaemonClient") -> list[CompletionWord]:
        listed = await client.list_sessions(_MAX_SESSIONS)
        return [(one.sessionId, f"{one.state} {one.repo.rootPath}") for one in listed]

    found = asyncio.run(_ask_daemon(ask))
    return [*found, ("last", "the last used")] if found else []


def complete_models() -> list[CompletionWord]:
    async def ask(client: "DaemonClient") -> list[CompletionWord]:
        return [(one.name, one.model or "") for one in await client.list_models() if one.usable]

    return asyncio.run(_ask_daemon(ask)) or [("demo", "built in")]


def complete_settings() -> list[CompletionWord]:
    from switchtower import config

    return [(setting.name, setting.help) for setting in config.SETTINGS if setting.in_file]


def complete_servers() -> list[CompletionWord]:
    from pathlib import Path

    from switchtower import config
    from switchtower.cli.doctor import services

    return [
        (one.name, "yours" if one.trusted else "of this folder")
        for one in services.find_servers(config.load(), Path.cwd()).servers
    ]


async def _ask_daemon(question: "Callable[[DaemonClient], Awaitable[list[T]]]") -> list[T]:
    """Queries the running daemon; returns nothing when none is running. Warnings are off, because a shell would show them."""
    import logging

    from switchtower import config
    from switchtower.client import errors
    from switchtower.client.client import DaemonClient

    logging.getLogger("switchtower.client").disabled = True
    try:
        async with asyncio.timeout(DAEMON_TIMEOUT), await DaemonClient.connect(config.load(), start=False) as client:
            return await question(client)
    except (errors.ClientError, ConfigError, TimeoutError):
        return []


def _clean_text(text: str) -> str | None:
    """Joins the text into one printable line: a session's title is untrusted."""
    shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return (shown if len(shown) <= _MAX_HELP_CHARS else f"{shown[: _MAX_HELP_CHARS - 1]}…") or None
