"""`tower nodes` lists the nodes that share one store and their sessions; `tower drain` empties this node, so that it can be
stopped without an interruption for clients."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from switchtower.cli import console, output, table
from switchtower.presentation import formats

if TYPE_CHECKING:
    from switchtower import config
    from switchtower.client.client import DaemonClient
    from switchtower.client.node_names import NodeNames
    from switchtower.protocols.push import listing_messages


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
@click.option("--sessions", is_flag=True, help="List the sessions in place of the nodes, each with the node that is its home.")
@click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="How many sessions at most.")
def nodes(as_json: bool, sessions: bool, limit: int) -> int:
    """List the nodes that share this daemon's store: how they do, and how many sessions have each as their home.

    A node is a daemon with `tower serve --store postgresql://…`. Each session has one home, the node that decides for it;
    clients may come to any node. The one that answers here has a `*`. A `draining` node gives its sessions away; a `silent` one
    has not said in time that it is there, and others take its sessions over.

    The command starts no daemon. One without a store is alone, and there is nothing to list.

    \b
    Example:
      tower nodes
      tower nodes --sessions
      tower nodes --json | jq -r '.[] | select(.alive) | .address'
    """
    import msgspec

    homes, cards = asyncio.run(_fetch_nodes(limit if sessions else 0))
    if as_json:
        output.write_line(msgspec.json.encode([_encode_card(card, homes) for card in cards] if sessions else homes.nodes))
        return console.ExitStatus.OK
    if not homes.nodes:
        console.print_line("this daemon is alone; hint: `tower serve --store postgresql://…` lets several share one store")
        return console.ExitStatus.OK
    now = time.time()
    cells = [_format_session(card, homes, now=now) for card in cards]
    if not sessions:
        cells = [_format_node(node, homes, now=now) for node in homes.nodes]
    for row in table.format_rows(cells):
        output.write_line(console.escape_unprintable(row))
    return console.ExitStatus.OK


async def _fetch_nodes(limit: int) -> "tuple[NodeNames, list[listing_messages.Card]]":
    """Fetches the nodes and up to `limit` sessions."""
    from switchtower import config
    from switchtower.client import node_names
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(config.load(), start=False) as client:
        known = node_names.NodeNames(sorted(await client.list_nodes(), key=lambda node: (node.name, node.joinedAt)))
        cards = await client.list_cards(limit) if limit and known.nodes else []
    return known, _sort_by_node(cards, known.nodes)


def _sort_by_node(
    cards: "list[listing_messages.Card]", nodes: "Sequence[listing_messages.Node]"
) -> "list[listing_messages.Card]":
    """Sorts sessions by node and keeps the daemon's order within each node; sessions without an owner are last."""
    places = {node.id: place for place, node in enumerate(nodes)}
    return sorted(cards, key=lambda card: (card.home is None, places.get(card.home or "", len(nodes)), card.home or ""))


def _format_node(node: "listing_messages.Node", node_names: "NodeNames", *, now: float) -> tuple[str, ...]:
    return (
        "*" if node.isThis else "",
        node_names.get_name(node.id),
        describe_state(node),
        "1 session" if node.sessions == 1 else f"{node.sessions} sessions",
        node.version or "-",
        node.address,
        f"joined {formats.format_age(now - node.joinedAt / 1_000)} ago",
        node.id,
    )


def describe_state(node: "listing_messages.Node") -> str:
    return "silent" if not node.alive else "draining" if node.draining else "alive"


def _format_session(card: "listing_messages.Card", node_names: "NodeNames", *, now: float) -> tuple[str, ...]:
    return (
        node_names.get_name(card.home) if card.home else "-",
        card.sessionId,
        card.state,
        formats.format_age(now - card.updatedAt / 1_000),
        card.title or card.rootPath,
    )


def _encode_card(card: "listing_messages.Card", node_names: "NodeNames") -> dict[str, Any]:
    return {
        "sessionId": card.sessionId,
        "state": card.state,
        "title": card.title,
        "rootPath": card.rootPath,
        "updatedAt": card.updatedAt,
        "home": card.home,
        "node": node_names.get_name(card.home) if card.home else None,
    }


_POLL_INTERVAL = 1.0
"""Seconds between two polls of the remaining sessions."""
_MAX_SESSIONS = 500
_ACTIVE_STATES = ("running", "awaiting_approval")


@click.command()
@click.option(
    "--wait",
    type=click.IntRange(0, 86_400),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="How long runs may take to end by themselves.",
)
@click.option("--stop", is_flag=True, help="Stop the daemon afterwards, as `tower stop` does.")
@click.pass_context
def drain(ctx: click.Context, wait: int, stop: bool) -> int:
    """Empty this node: hand its sessions to the other nodes and send its clients there.

    From then on the node takes up nothing new, and `/readyz` says so to a load balancer. Runs have --wait seconds to end; those
    that have not are cut short, and go on or are closed at their new home as after a crash. Pending approvals are kept, and can
    be decided at any node. The node itself stays, empty, until it is stopped. Asked again, it tells what came of the first time.

    Exits with 0 when the node is empty, also when runs were cut short; with 1 when it could not be emptied. Ctrl-C ends only the
    watching, with 2: the node goes on.

    \b
    Example:
      tower drain
      tower drain --wait 300 --stop && tower serve
    """
    from switchtower import config

    try:
        code = asyncio.run(_drain(config.load(), wait))
    except KeyboardInterrupt:
        console.print_line("the node goes on draining; hint: `tower drain` again tells what came of it")
        return console.ExitStatus.CANCELLED
    if code != console.ExitStatus.OK or not stop:
        return code
    from switchtower.cli.commands import daemon as stopping

    return int(ctx.invoke(stopping.stop))


async def _drain(settings: "config.Settings", wait: int) -> int:
    from switchtower.client import node_names
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(settings, start=False) as client:
        known = node_names.NodeNames(await client.list_nodes())
        if known.own_node is None:
            console.print_error(
                "this daemon is alone: there is nobody to hand its sessions to", "`tower stop` keeps them for its return"
            )
            return console.ExitStatus.FAILED
        name = known.get_name(known.own_node.id)
        if known.own_node.draining:
            console.print_line(f"{name} is being drained already, or has been")
        else:
            if not any(node.alive and not node.draining and not node.isThis for node in known.nodes):
                console.print_line("no other node is there: the sessions wait until one comes", "yellow")
            console.print_line(f"draining {name}; runs have {wait} s to end")
        watching = asyncio.ensure_future(_watch(settings))
        try:
            drained = await client.drain_node(wait)
        finally:
            watching.cancel()
    _print_result(drained)
    return console.ExitStatus.OK


async def _watch(settings: "config.Settings") -> None:
    """Prints the remaining sessions whenever they change, until it is cancelled. It uses a separate connection, because the other
    one waits for the answer."""
    from switchtower.client import errors
    from switchtower.client.client import DaemonClient

    said = ""
    while True:
        with suppress(errors.ClientError):  # the node disconnects clients, and its database may be unreachable for a moment
            async with await DaemonClient.connect(settings, start=False) as looking:
                still_here = await _describe_remaining(looking)
            if still_here and still_here != said:
                said = still_here
                console.print_line(f"  {still_here}")
        await asyncio.sleep(_POLL_INTERVAL)


async def _describe_remaining(client: "DaemonClient") -> str:
    this = next((node for node in await client.list_nodes() if node.isThis), None)
    if this is None or not this.sessions:
        return ""
    at_work = sum(card.home == this.id and card.state in _ACTIVE_STATES for card in await client.list_cards(_MAX_SESSIONS))
    return f"{_format_count(this.sessions, 'session')} here, {at_work} at work"


def _print_result(drained: "listing_messages.NodeDrained") -> None:
    console.print_line(f"the node is empty: {_format_count(drained.sessions, 'session')} handed over", "green")
    if drained.interrupted:
        console.print_line(f"{_format_count(drained.interrupted, 'run')} did not end in time and had to be cut short", "yellow")


def _format_count(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"
