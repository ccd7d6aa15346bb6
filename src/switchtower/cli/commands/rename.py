"""`tower rename`: what people call a session."""

import asyncio

import click

from switchtower.cli import arguments, console


@click.command()
@click.argument("session")
@click.argument("title", callback=arguments.validate_sendable)
@arguments.token_option
def rename(session: str, title: str, token: str | None) -> int:
    """Give a session a title, which lists and documents show.

    SESSION is an id, a unique beginning or end of one, or `last`.

    \b
    Example:
      tower rename last "the failing build"
    """
    session_id = asyncio.run(_rename(session, title, token))
    console.print_line(f"{session_id} is called “{title}” now")
    return console.ExitStatus.OK


async def _rename(session_ref: str, title: str, token: str | None) -> str:
    from switchtower.cli import lookup

    async with lookup.open_session(session_ref, token) as (client, session_id):
        await client.configure_session(session_id, title=title)
        return session_id
