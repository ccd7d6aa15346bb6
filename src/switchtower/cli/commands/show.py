"""`tower show`: all that is known about one session."""

import asyncio
from typing import TYPE_CHECKING

import click

from switchtower.cli import arguments, console, output, table

if TYPE_CHECKING:
    from switchtower.cli.waiting import Waiting
    from switchtower.protocols.push import extensions


@click.command()
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@arguments.token
def show(session: str, as_json: bool, token: str | None) -> int:
    """Print what a session is and does: its model and policy, what it took so far, what waits, what can be undone.

    SESSION is an id, a unique beginning or end of one, or `last`. Its conversation is printed by `tower attach`.

    \b
    Example:
      tower show last
      tower show last --json
    """
    about, waits, node = asyncio.run(_ask(session, token))
    if as_json:
        import msgspec

        output.line(
            msgspec.json.encode({**msgspec.to_builtins(about), "waiting": msgspec.to_builtins(waits)} if waits else about)
        )
        return console.Exit.OK

    from switchtower.cli import portrait

    for line in table.fields(portrait.of(about, waits, node=node)):
        output.line(console.printable(line))
    return console.Exit.OK


async def _ask(meant: str, token: str | None) -> "tuple[extensions.SessionInfo, list[Waiting], str]":
    from switchtower.cli import lookup, waiting
    from switchtower.client import homes

    async with lookup.opened(meant, token) as (client, session_id):
        about = await client.get_session(session_id)
        node = (await homes.of(client)).shown(about.home) if about.home else ""
        if about.activeRunId is None or about.terminal is not None:
            return about, [], node  # what a program waits for, its terminal says
        return about, (await waiting.look(client, session_id)).listed(), node
