"""`tower inbox`: everything that waits for a decision, wherever it is."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from switchtower.cli import ages, console, output

if TYPE_CHECKING:
    from switchtower.client.client import DaemonClient
    from switchtower.client.homes import NodeNames
    from switchtower.protocols.push import listings


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
@click.option("--watch", is_flag=True, help="Continue, and print each one as it comes. Ctrl-C ends it.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when something waits; for scripts.")
def inbox(as_json: bool, watch: bool, exit_code: bool) -> int:
    """List what waits for a decision, of all sessions and hosts, with exactly what will run.

    \b
    Exit codes:
      0, or with --exit-code 1 when something waits

    \b
    Example:
      tower inbox
      tower inbox --json | jq -r '.[].approval.approvalId'
      tower inbox --watch
    """
    try:
        return asyncio.run(_watch(as_json=as_json) if watch else _list_pending(as_json=as_json, exit_code=exit_code))
    except KeyboardInterrupt:
        return console.ExitStatus.OK


async def _list_pending(*, as_json: bool, exit_code: bool) -> int:
    import msgspec

    from switchtower import config
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(config.load()) as client:
        waiting = await client.list_approvals()
        known = await _fetch_node_names(client, waiting)
    if as_json:
        output.write_line(msgspec.json.encode(waiting))
    else:
        for one in waiting:
            _print_approval(one, known)
        if not waiting:
            console.print_line("nothing waits for a decision")
    return console.ExitStatus.FAILED if waiting and exit_code else console.ExitStatus.OK


_POLL_INTERVAL = 1.0
"""Seconds between two looks: nobody tells of all sessions at once."""


async def _watch(*, as_json: bool) -> int:
    import msgspec

    from switchtower import config
    from switchtower.client.client import DaemonClient

    known: set[str] = set()
    async with await DaemonClient.connect(config.load()) as client:
        while True:
            waiting = await client.list_approvals()
            known_homes = await _fetch_node_names(client, waiting)
            for one in waiting:
                if one.approval.approvalId not in known:
                    if as_json:
                        output.write_line(msgspec.json.encode(one))
                    else:
                        _print_approval(one, known_homes)
            known = {one.approval.approvalId for one in waiting}
            await asyncio.sleep(_POLL_INTERVAL)


async def _fetch_node_names(client: "DaemonClient", waiting: "Sequence[listings.PendingApproval]") -> "NodeNames":
    """Asked for only when a session has one: alone, none has."""
    from switchtower.client import homes

    return await homes.fetch_node_names(client) if any(one.home for one in waiting) else homes.NO_NODES


def _print_approval(one: "listings.PendingApproval", node_names: "NodeNames") -> None:
    from switchtower.cli import questions

    place = one.host or node_names.format_owner(one.home)
    where = f" on {place}" if place else ""
    left = ages.format_age(one.approval.expiresAt / 1_000 - time.time())
    title = f" {one.sessionTitle}" if one.sessionTitle else ""
    output.write_line(console.escape_unprintable(f"{one.approval.approvalId}  {one.sessionId}{where}{title}"))
    for text, _ in questions.format_approval(one.approval):
        output.write_line(console.escape_unprintable(text))
    approve = (
        f"`tower approve {one.approval.approvalId}`"
        if "approve" in one.approval.options
        else f"decide at the terminal: `tower attach {one.sessionId}`,"
    )
    output.write_line(f"  expires in {left}; hint: {approve} or `tower deny {one.approval.approvalId}`")
