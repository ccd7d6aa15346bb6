"""`tower sessions`: what there is to attach to."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from switchtower.cli import ages, console, output, table

if TYPE_CHECKING:
    from switchtower.cli.waiting import OpenRequest
    from switchtower.client.client import DaemonClient
    from switchtower.protocols.push import extensions, listings, messages

    TerminalsBySession = Mapping[str, extensions.TerminalListing]
    RequestsBySession = Mapping[str, Sequence[OpenRequest]]
    NodeNameBySession = Mapping[str, str]
    CardsBySession = Mapping[str, listings.Card]


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

    listed, programs, waits, homes, cards = asyncio.run(_fetch_sessions(limit))
    if as_json:
        output.write_line(msgspec.json.encode([_describe_session(session, programs, waits, homes, cards) for session in listed]))
        return console.ExitStatus.OK
    if not listed:
        console.print_line('no sessions yet; hint: start one with `tower run --headless "…"`')
    for session, row in zip(
        listed, table.format_rows(_format_session_rows(listed, programs, homes, cards, now=time.time())), strict=True
    ):
        output.write_line(console.escape_unprintable(row))
        for line in _format_requests(waits.get(session.sessionId, ())):
            output.write_line(console.escape_unprintable(line))
    return console.ExitStatus.OK


def _format_requests(requests: "Sequence[OpenRequest]") -> list[str]:
    from switchtower.cli import waiting

    return [f"  ? {waiting.format_request(one)}" for one in requests]


async def _fetch_sessions(
    limit: int,
) -> "tuple[Sequence[messages.ListedSession], TerminalsBySession, RequestsBySession, NodeNameBySession, CardsBySession]":
    from switchtower import config
    from switchtower.cli import waiting
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(config.load()) as client:
        listed = await client.list_sessions(limit)
        programs = {program.sessionId: program for program in await client.list_terminals(limit)}
        waits = await waiting.find_requests_by_session(client, [one for one in listed if one.sessionId not in programs])
        cards = {card.sessionId: card for card in await client.list_cards(limit)} if client.supports("cards") else {}
        return listed, programs, waits, await _fetch_session_nodes(client, cards), cards


async def _fetch_session_nodes(client: "DaemonClient", cards: "CardsBySession") -> "NodeNameBySession":
    """What the node of each session is called; nothing where there is but one node."""
    from switchtower.client import homes

    known = await homes.fetch_node_names(client)
    return {session_id: known.format_owner(card.home) for session_id, card in cards.items()} if known.has_several else {}


def _describe_session(
    session: "messages.ListedSession",
    programs: "TerminalsBySession",
    requests: "RequestsBySession",
    node_names: "NodeNameBySession",
    cards: "CardsBySession",
) -> "messages.ListedSession | dict[str, Any]":
    import msgspec

    more: dict[str, Any] = {}
    if (program := programs.get(session.sessionId)) is not None:
        more["terminal"] = {name: value for name, value in msgspec.to_builtins(program).items() if name != "sessionId"}
    if asked := requests.get(session.sessionId):
        more["waiting"] = msgspec.to_builtins(asked)
    if (card := cards.get(session.sessionId)) is not None:
        more["sandbox"] = card.sandbox
        more |= {"childOf": card.childOf} if card.childOf else {}
    if node_names:
        more["node"] = node_names.get(session.sessionId) or None
    return {**msgspec.to_builtins(session), **more} if more else session


def _format_session_rows(
    listed: "Sequence[messages.ListedSession]",
    programs: "TerminalsBySession",
    node_names: "NodeNameBySession",
    cards: "CardsBySession",
    *,
    now: float,
) -> list[tuple[str, ...]]:
    has_bounds = any(card.sandbox or card.childOf for card in cards.values())
    return [
        (
            session.sessionId,
            session.state,
            ages.format_age(now - session.updatedAt / 1000),
            *((node_names.get(session.sessionId) or "-",) if node_names else ()),
            *((_format_bounds(cards.get(session.sessionId)),) if has_bounds else ()),
            session.repo.currentBranch,
            session.repo.rootPath,
            *((_format_program(programs.get(session.sessionId)),) if programs else ()),
        )
        for session in listed
    ]


def _format_bounds(card: "listings.Card | None") -> str:
    if card is None:
        return "-"
    return f"{card.sandbox or '-'}, child of {card.childOf[-6:]}" if card.childOf else card.sandbox or "-"


def _format_program(program: "extensions.TerminalListing | None") -> str:
    if program is None:
        return ""
    title = " ".join(program.title.split())
    named = title if title.startswith(program.tool) else f"{program.tool}: {title}"
    where = f" on {program.host}" if program.host else ""
    how = f" (exit code {program.exitCode})" if program.exitCode else f" (waits: {program.waitsFor})" if program.waitsFor else ""
    return f"{named}{where}{how}"
