"""`tower compact`: a session's conversation made shorter, by a summary that its model writes."""

import asyncio

import click

from switchtower.cli import arguments


@click.command()
@click.argument("session")
@click.argument("instructions", required=False, default="")
@arguments.token_option
def compact(session: str, instructions: str, token: str | None) -> int:
    """Have the beginning of a session's conversation summarised, so that its context is small again.

    SESSION is an id, a unique beginning or end of one, or `last`; INSTRUCTIONS tell the model what matters. The journal keeps
    everything. Ctrl-C cancels it.

    \b
    Example:
      tower compact last
      tower compact last "keep the names of all failing tests"
    """
    return asyncio.run(_compact(session, arguments.make_sendable(instructions), token))


async def _compact(session_ref: str, instructions: str, token: str | None) -> int:
    from switchtower.cli import lookup
    from switchtower.cli.chores import MaintenanceRun

    async with lookup.open_session(session_ref, token) as (client, session_id):
        chore = MaintenanceRun("Context compacted")
        return await chore.run(client, session_id, lambda: client.compact_session(session_id, instructions))
