"""`tower show`: all that is known about one session."""

import asyncio
from typing import TYPE_CHECKING

import click

from switchtower.cli import arguments, console, output, table

if TYPE_CHECKING:
    from switchtower.cli.waiting import OpenRequest
    from switchtower.protocols.push import extensions


@click.command()
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@arguments.token_option
def show(session: str, as_json: bool, token: str | None) -> int:
    """Print what a session is and does: its model and policy, what it took so far, what waits, what can be undone.

    SESSION is an id, a unique beginning or end of one, or `last`. Its conversation is printed by `tower attach`.

    \b
    Example:
      tower show last
      tower show last --json
    """
    about, waits, node = asyncio.run(_fetch_session(session, token))
    if as_json:
        import msgspec

        output.write_line(
            msgspec.json.encode({**msgspec.to_builtins(about), "waiting": msgspec.to_builtins(waits)} if waits else about)
        )
        return console.ExitStatus.OK

    from switchtower.cli import portrait

    for line in table.format_fields(portrait.list_session_details(about, waits, node=node)):
        output.write_line(console.escape_unprintable(line))
    return console.ExitStatus.OK


async def _fetch_session(session_ref: str, token: str | None) -> "tuple[extensions.SessionInfo, list[OpenRequest], str]":
    from switchtower.cli import lookup, waiting
    from switchtower.client import homes

    async with lookup.open_session(session_ref, token) as (client, session_id):
        about = await client.get_session(session_id)
        node = (await homes.fetch_node_names(client)).format_owner(about.home) if about.home else ""
        if about.activeRunId is None or about.terminal is not None:
            return about, [], node  # what a program waits for, its terminal says
        return about, (await waiting.find_open_requests(client, session_id)).list_requests(), node
