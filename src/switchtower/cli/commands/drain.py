"""`tower drain`: empties this node, so that it can be stopped and nobody notices."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from switchtower.cli import console

if TYPE_CHECKING:
    from switchtower import config
    from switchtower.client.client import DaemonClient
    from switchtower.protocols.push import node_messages

_POLL_INTERVAL = 1.0
"""Seconds between two looks at what is still here."""
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
    from switchtower.cli.commands import stop as stopping

    return int(ctx.invoke(stopping.stop))


async def _drain(settings: "config.Settings", wait: int) -> int:
    from switchtower.client import homes
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(settings, start=False) as client:
        known = homes.NodeNames(await client.list_nodes())
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
    """Says what is still here, whenever that changes, until it is cancelled. Asks by itself: the other line waits."""
    from switchtower.client import errors
    from switchtower.client.client import DaemonClient

    said = ""
    while True:
        with suppress(errors.ClientError):  # clients are let go on the way, and a database may be away for a moment
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


def _print_result(drained: "node_messages.NodeDrained") -> None:
    console.print_line(f"the node is empty: {_format_count(drained.sessions, 'session')} handed over", "green")
    if drained.interrupted:
        console.print_line(f"{_format_count(drained.interrupted, 'run')} did not end in time and had to be cut short", "yellow")


def _format_count(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"
