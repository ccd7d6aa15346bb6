"""`tower sessions`: what there is to attach to."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from switchtower.cli import ages, console, output, table

if TYPE_CHECKING:
    from switchtower.protocols.push import messages


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many at most.")
def sessions(as_json: bool, limit: int) -> int:
    """List the sessions, the last used first.

    The end of an id is enough to name a session in other commands, and `last` is the first one listed.

    \b
    Example:
      tower sessions --limit 5
    """
    import msgspec

    listed = asyncio.run(_list(limit))
    if as_json:
        output.line(msgspec.json.encode(listed))
        return console.Exit.OK
    if not listed:
        console.say('no sessions yet; hint: start one with `tower run --headless "…"`')
    for row in table.rows(_cells(listed, now=time.time())):
        output.line(console.printable(row))
    return console.Exit.OK


async def _list(limit: int) -> "Sequence[messages.ListedSession]":
    from switchtower import config
    from switchtower.client.client import Client

    async with await Client.connect(config.load()) as client:
        return await client.list_sessions(limit)


def _cells(listed: "Sequence[messages.ListedSession]", *, now: float) -> list[tuple[str, ...]]:
    return [
        (
            session.sessionId,
            session.state,
            ages.age(now - session.updatedAt / 1000),
            session.repo.currentBranch,
            session.repo.rootPath,
        )
        for session in listed
    ]
