"""What a shell offers for an argument: sessions and models from a daemon that runs, settings from their table. Starts nothing,
prints nothing, and an answer that does not come soon is no answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from switchtower.client.client import Client

PATIENCE = 2.0
_MOST = 200
_SHORT = 60

T = TypeVar("T")
Offer = tuple[str, str]
"""A word, and what is said about it."""


class Offered(click.types.StringParamType):
    """Text, as it was, with words that a shell can offer for it."""

    def __init__(self, offers: Callable[[], Iterable[Offer]]) -> None:
        self._offers = offers

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            offers = list(self._offers())
        except Exception:  # a shell that asks must never be told of a traceback
            return []
        return [CompletionItem(word, help=_shown(said)) for word, said in offers if word.startswith(incomplete)]


def equip(command: click.Command, path: str = "") -> None:
    """Gives the arguments of a command, and of those below it, what can be offered for them."""
    name = f"{path} {command.name}".strip()
    for parameter in command.params:
        if parameter.type is click.STRING and (offers := _offers_for(name, parameter)) is not None:
            parameter.type = Offered(offers)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            equip(below, name)


def _offers_for(command: str, parameter: click.Parameter) -> Callable[[], Iterable[Offer]] | None:
    match command, parameter.name:
        case _, "session" | "session_id" | "sessions":
            return sessions
        case _, "provider":
            return models
        case (("config get" | "config set" | "config unset"), "name"):
            return settings
        case "mcp test", "name":
            return servers
        case _:
            return None


def sessions() -> list[Offer]:
    async def ask(client: "Client") -> list[Offer]:
        listed = await client.list_sessions(_MOST)
        return [(one.sessionId, f"{one.state} {one.repo.rootPath}") for one in listed]

    found = asyncio.run(_asked(ask))
    return [*found, ("last", "the last used")] if found else []


def models() -> list[Offer]:
    async def ask(client: "Client") -> list[Offer]:
        return [(one.name, one.model or "") for one in await client.models() if one.usable]

    return asyncio.run(_asked(ask)) or [("demo", "built in")]


def settings() -> list[Offer]:
    from switchtower import config

    return [(setting.name, setting.help) for setting in config.SETTINGS if setting.in_file]


def servers() -> list[Offer]:
    from pathlib import Path

    from switchtower import config
    from switchtower.cli.mcp_servers import probing

    return [(one.name, "yours" if one.trusted else "of this folder") for one in probing.found(config.load(), Path.cwd()).servers]


async def _asked(question: "Callable[[Client], Awaitable[list[T]]]") -> list[T]:
    """Of the daemon that runs; nothing when none does. A shell that completes a word shows no warnings."""
    import logging

    from switchtower import config
    from switchtower.client import errors
    from switchtower.client.client import Client

    logging.getLogger("switchtower.client").disabled = True
    try:
        async with asyncio.timeout(PATIENCE), await Client.connect(config.load(), start=False) as client:
            return await question(client)
    except (errors.ClientError, config.ConfigError, TimeoutError):
        return []


def _shown(text: str) -> str | None:
    """On one line and harmless: what was said about a session came from elsewhere."""
    shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return (shown if len(shown) <= _SHORT else f"{shown[: _SHORT - 1]}…") or None
