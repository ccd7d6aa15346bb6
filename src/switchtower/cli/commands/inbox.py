"""`tower inbox`: everything that waits for a decision, wherever it is."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from switchtower.cli import ages, console, output

if TYPE_CHECKING:
    from switchtower.client.client import Client
    from switchtower.client.homes import Homes
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
        return asyncio.run(_watch(as_json=as_json) if watch else _list(as_json=as_json, exit_code=exit_code))
    except KeyboardInterrupt:
        return console.Exit.OK


async def _list(*, as_json: bool, exit_code: bool) -> int:
    import msgspec

    from switchtower import config
    from switchtower.client.client import Client

    async with await Client.connect(config.load()) as client:
        waiting = await client.approvals()
        known = await _homes(client, waiting)
    if as_json:
        output.line(msgspec.json.encode(waiting))
    else:
        for one in waiting:
            _show(one, known)
        if not waiting:
            console.say("nothing waits for a decision")
    return console.Exit.FAILED if waiting and exit_code else console.Exit.OK


_EVERY = 1.0
"""Seconds between two looks: nobody tells of all sessions at once."""


async def _watch(*, as_json: bool) -> int:
    import msgspec

    from switchtower import config
    from switchtower.client.client import Client

    known: set[str] = set()
    async with await Client.connect(config.load()) as client:
        while True:
            waiting = await client.approvals()
            known_homes = await _homes(client, waiting)
            for one in waiting:
                if one.approval.approvalId not in known:
                    if as_json:
                        output.line(msgspec.json.encode(one))
                    else:
                        _show(one, known_homes)
            known = {one.approval.approvalId for one in waiting}
            await asyncio.sleep(_EVERY)


async def _homes(client: "Client", waiting: "Sequence[listings.PendingApproval]") -> "Homes":
    """Asked for only when a session has one: alone, none has."""
    from switchtower.client import homes

    return await homes.of(client) if any(one.home for one in waiting) else homes.ALONE


def _show(one: "listings.PendingApproval", homes: "Homes") -> None:
    from switchtower.cli import questions

    place = one.host or homes.shown(one.home)
    where = f" on {place}" if place else ""
    left = ages.age(one.approval.expiresAt / 1_000 - time.time())
    title = f" {one.sessionTitle}" if one.sessionTitle else ""
    output.line(console.printable(f"{one.approval.approvalId}  {one.sessionId}{where}{title}"))
    for text, _ in questions.lines(one.approval):
        output.line(console.printable(text))
    approve = (
        f"`tower approve {one.approval.approvalId}`"
        if "approve" in one.approval.options
        else f"decide at the terminal: `tower attach {one.sessionId}`,"
    )
    output.line(f"  expires in {left}; hint: {approve} or `tower deny {one.approval.approvalId}`")
