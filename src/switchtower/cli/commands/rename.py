"""`tower rename`: what people call a session."""

import asyncio

import click

from switchtower.cli import arguments, console


@click.command()
@click.argument("session")
@click.argument("title", callback=arguments.sendable_option)
@arguments.token
def rename(session: str, title: str, token: str | None) -> int:
    """Give a session a title, which lists and documents show.

    SESSION is an id, a unique beginning or end of one, or `last`.

    \b
    Example:
      tower rename last "the failing build"
    """
    session_id = asyncio.run(_rename(session, title, token))
    console.say(f"{session_id} is called “{title}” now")
    return console.Exit.OK


async def _rename(meant: str, title: str, token: str | None) -> str:
    from switchtower.cli import lookup

    async with lookup.opened(meant, token) as (client, session_id):
        await client.configure(session_id, title=title)
        return session_id
