"""`tower sessions`: what there is to attach to."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from switchtower.cli import console, output

if TYPE_CHECKING:
    from switchtower.protocols.push import messages

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


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
    for row in _table(listed, now=time.time()):
        output.line(row)
    return console.Exit.OK


async def _list(limit: int) -> "Sequence[messages.ListedSession]":
    from switchtower import config
    from switchtower.client.client import Client

    async with await Client.connect(config.load()) as client:
        return await client.list_sessions(limit)


def _table(listed: "Sequence[messages.ListedSession]", *, now: float) -> list[str]:
    rows = [
        (session.sessionId, session.state, age(now - session.updatedAt / 1000), session.repo.currentBranch, session.repo.rootPath)
        for session in listed
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)] if rows else []
    return [
        console.printable("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]))
        for row in rows
    ]


def age(seconds: float) -> str:
    """How long ago, or how long since, in one unit."""
    whole = max(0, int(seconds))
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if whole >= unit:
            return f"{whole // unit} {name}"
    return f"{whole} s"
