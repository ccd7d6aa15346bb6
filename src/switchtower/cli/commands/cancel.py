"""`tower cancel`: ends a session's run; the session stays."""

import asyncio

import click

from switchtower.cli import arguments, console


@click.command()
@click.argument("session")
@click.option("--force", is_flag=True, help="Kill a program in a terminal, and do not ask it to end first.")
@arguments.token_option
def cancel(session: str, force: bool, token: str | None) -> int:
    """Cancel a session's run. The session stays and takes further messages, unless it is a program in a terminal.

    SESSION is an id, a unique beginning or end of one, or `last`.

    \b
    Example:
      tower cancel last
    """
    return asyncio.run(_cancel(session, token, force=force))


async def _cancel(session_ref: str, token: str | None, *, force: bool) -> int:
    from switchtower.cli import lookup

    async with lookup.open_session(session_ref, token) as (client, session_id):
        await client.cancel_run(session_id, force=force)
    console.print_line(f"cancelling the run of {session_id}")
    return console.ExitStatus.OK
