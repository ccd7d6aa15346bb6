"""`tower sessions`: what there is to attach to."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from switchtower.cli import ages, console, output, table

if TYPE_CHECKING:
    from switchtower.cli.waiting import Waiting
    from switchtower.client.client import Client
    from switchtower.protocols.push import extensions, listings, messages

    Programs = Mapping[str, extensions.TerminalListing]
    Waits = Mapping[str, Sequence[Waiting]]
    Homes = Mapping[str, str]
    Cards = Mapping[str, listings.Card]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many at most.")
def sessions(as_json: bool, limit: int) -> int:
    """List the sessions, the last used first.

    The sandbox of each session is shown, and of a session that a run has started, whose child it is. Of a program in a terminal,
    the command is shown too, or its name. Where several nodes share one store, the
    node that a session has as its home is shown. A session that waits for a decision or an answer has what is asked below it. The
    end of an id is enough to name a session in other commands, and `last` is the first one listed.

    \b
    Example:
      tower sessions --limit 5
    """
    import msgspec

    listed, programs, waits, homes, cards = asyncio.run(_list(limit))
    if as_json:
        output.line(msgspec.json.encode([_described(session, programs, waits, homes, cards) for session in listed]))
        return console.Exit.OK
    if not listed:
        console.say('no sessions yet; hint: start one with `tower run --headless "…"`')
    for session, row in zip(listed, table.rows(_cells(listed, programs, homes, cards, now=time.time())), strict=True):
        output.line(console.printable(row))
        for line in _asked(waits.get(session.sessionId, ())):
            output.line(console.printable(line))
    return console.Exit.OK


def _asked(waits: "Sequence[Waiting]") -> list[str]:
    from switchtower.cli import waiting

    return [f"  ? {waiting.spelled(one)}" for one in waits]


async def _list(limit: int) -> "tuple[Sequence[messages.ListedSession], Programs, Waits, Homes, Cards]":
    from switchtower import config
    from switchtower.cli import waiting
    from switchtower.client.client import Client

    async with await Client.connect(config.load()) as client:
        listed = await client.list_sessions(limit)
        programs = {program.sessionId: program for program in await client.terminals(limit)}
        waits = await waiting.of(client, [one for one in listed if one.sessionId not in programs])
        cards = {card.sessionId: card for card in await client.cards(limit)} if client.offers("cards") else {}
        return listed, programs, waits, await _homes(client, cards), cards


async def _homes(client: "Client", cards: "Cards") -> "Homes":
    """What the node of each session is called; nothing where there is but one node."""
    from switchtower.client import homes

    known = await homes.of(client)
    return {session_id: known.shown(card.home) for session_id, card in cards.items()} if known.several else {}


def _described(
    session: "messages.ListedSession", programs: "Programs", waits: "Waits", homes: "Homes", cards: "Cards"
) -> "messages.ListedSession | dict[str, Any]":
    import msgspec

    more: dict[str, Any] = {}
    if (program := programs.get(session.sessionId)) is not None:
        more["terminal"] = {name: value for name, value in msgspec.to_builtins(program).items() if name != "sessionId"}
    if asked := waits.get(session.sessionId):
        more["waiting"] = msgspec.to_builtins(asked)
    if (card := cards.get(session.sessionId)) is not None:
        more["sandbox"] = card.sandbox
        more |= {"childOf": card.childOf} if card.childOf else {}
    if homes:
        more["node"] = homes.get(session.sessionId) or None
    return {**msgspec.to_builtins(session), **more} if more else session


def _cells(
    listed: "Sequence[messages.ListedSession]", programs: "Programs", homes: "Homes", cards: "Cards", *, now: float
) -> list[tuple[str, ...]]:
    has_bounds = any(card.sandbox or card.childOf for card in cards.values())
    return [
        (
            session.sessionId,
            session.state,
            ages.age(now - session.updatedAt / 1000),
            *((homes.get(session.sessionId) or "-",) if homes else ()),
            *((_bounds(cards.get(session.sessionId)),) if has_bounds else ()),
            session.repo.currentBranch,
            session.repo.rootPath,
            *((_program(programs.get(session.sessionId)),) if programs else ()),
        )
        for session in listed
    ]


def _bounds(card: "listings.Card | None") -> str:
    if card is None:
        return "-"
    return f"{card.sandbox or '-'}, child of {card.childOf[-6:]}" if card.childOf else card.sandbox or "-"


def _program(program: "extensions.TerminalListing | None") -> str:
    if program is None:
        return ""
    title = " ".join(program.title.split())
    named = title if title.startswith(program.tool) else f"{program.tool}: {title}"
    where = f" on {program.host}" if program.host else ""
    how = f" (exit code {program.exitCode})" if program.exitCode else f" (waits: {program.waitsFor})" if program.waitsFor else ""
    return f"{named}{where}{how}"
