"""`tower nodes`: the nodes that share one store, and which session is whose."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from switchtower.cli import ages, console, output, table

if TYPE_CHECKING:
    from switchtower.client.homes import NodeNames
    from switchtower.protocols.push import listings, node_messages


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


async def _fetch_nodes(limit: int) -> "tuple[NodeNames, list[listings.Card]]":
    """The nodes, and so many sessions by home."""
    from switchtower import config
    from switchtower.client import homes
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(config.load(), start=False) as client:
        known = homes.NodeNames(sorted(await client.list_nodes(), key=lambda node: (node.name, node.joinedAt)))
        cards = await client.list_cards(limit) if limit and known.nodes else []
    return known, _sort_by_node(cards, known.nodes)


def _sort_by_node(cards: "list[listings.Card]", nodes: "Sequence[node_messages.Node]") -> "list[listings.Card]":
    """In the order of the nodes, and each node's as the daemon listed them; those that nobody has come last."""
    places = {node.id: place for place, node in enumerate(nodes)}
    return sorted(cards, key=lambda card: (card.home is None, places.get(card.home or "", len(nodes)), card.home or ""))


def _format_node(node: "node_messages.Node", node_names: "NodeNames", *, now: float) -> tuple[str, ...]:
    return (
        "*" if node.isThis else "",
        node_names.get_name(node.id),
        describe_state(node),
        "1 session" if node.sessions == 1 else f"{node.sessions} sessions",
        node.version or "-",
        node.address,
        f"joined {ages.format_age(now - node.joinedAt / 1_000)} ago",
        node.id,
    )


def describe_state(node: "node_messages.Node") -> str:
    return "silent" if not node.alive else "draining" if node.draining else "alive"


def _format_session(card: "listings.Card", node_names: "NodeNames", *, now: float) -> tuple[str, ...]:
    return (
        node_names.get_name(card.home) if card.home else "-",
        card.sessionId,
        card.state,
        ages.format_age(now - card.updatedAt / 1_000),
        card.title or card.rootPath,
    )


def _encode_card(card: "listings.Card", node_names: "NodeNames") -> dict[str, Any]:
    return {
        "sessionId": card.sessionId,
        "state": card.state,
        "title": card.title,
        "rootPath": card.rootPath,
        "updatedAt": card.updatedAt,
        "home": card.home,
        "node": node_names.get_name(card.home) if card.home else None,
    }
