"""`tower cancel`: ends a session's run; the session stays."""

import asyncio

import click

from switchtower.cli import console


@click.command()
@click.argument("session")
def cancel(session: str) -> int:
    """Cancel a session's run. The session stays and takes further messages.

    SESSION is an id, a unique beginning or end of one, or `last`.

    \b
    Example:
      tower cancel last
    """
    return asyncio.run(_cancel(session))


async def _cancel(meant: str) -> int:
    from switchtower import config
    from switchtower.cli import lookup
    from switchtower.client.client import Client

    async with await Client.connect(config.load()) as client:
        session_id = await lookup.session_id(client, meant)
        await client.cancel(session_id)
    console.say(f"cancelling the run of {session_id}")
    return console.Exit.OK
