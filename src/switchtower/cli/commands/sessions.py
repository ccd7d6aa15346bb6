"""`tower sessions`: what there is to attach to."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from switchtower.cli import ages, console, output, table

if TYPE_CHECKING:
    from switchtower.protocols.push import extensions, messages

    Listing = tuple[Sequence[messages.ListedSession], Mapping[str, extensions.TerminalListing]]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many at most.")
def sessions(as_json: bool, limit: int) -> int:
    """List the sessions, the last used first.

    Of a program in a terminal, the command is shown too, or what somebody has called it. The end of an id is enough to name a
    session in other commands, and `last` is the first one listed.

    \b
    Example:
      tower sessions --limit 5
    """
    import msgspec

    listed, programs = asyncio.run(_list(limit))
    if as_json:
        output.line(msgspec.json.encode([_described(session, programs) for session in listed]))
        return console.Exit.OK
    if not listed:
        console.say('no sessions yet; hint: start one with `tower run --headless "…"`')
    for row in table.rows(_cells(listed, programs, now=time.time())):
        output.line(console.printable(row))
    return console.Exit.OK


async def _list(limit: int) -> "Listing":
    from switchtower import config
    from switchtower.client.client import Client

    async with await Client.connect(config.load()) as client:
        listed = await client.list_sessions(limit)
        return listed, {program.sessionId: program for program in await client.terminals(limit)}


def _described(
    session: "messages.ListedSession", programs: "Mapping[str, extensions.TerminalListing]"
) -> "messages.ListedSession | dict[str, Any]":
    import msgspec

    if (program := programs.get(session.sessionId)) is None:
        return session
    about = {name: value for name, value in msgspec.to_builtins(program).items() if name != "sessionId"}
    return {**msgspec.to_builtins(session), "terminal": about}


def _cells(
    listed: "Sequence[messages.ListedSession]", programs: "Mapping[str, extensions.TerminalListing]", *, now: float
) -> list[tuple[str, ...]]:
    return [
        (
            session.sessionId,
            session.state,
            ages.age(now - session.updatedAt / 1000),
            session.repo.currentBranch,
            session.repo.rootPath,
            *((_program(programs.get(session.sessionId)),) if programs else ()),
        )
        for session in listed
    ]


def _program(program: "extensions.TerminalListing | None") -> str:
    if program is None:
        return ""
    title = " ".join(program.title.split())
    named = title if title.startswith(program.tool) else f"{program.tool}: {title}"
    where = f" on {program.host}" if program.host else ""
    how = f" (exit code {program.exitCode})" if program.exitCode else f" (waits: {program.waitsFor})" if program.waitsFor else ""
    return f"{named}{where}{how}"
