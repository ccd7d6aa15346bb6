"""`tower diff`: what a session changed in its folder."""

import asyncio

import click

from switchtower.cli import arguments, console, output


@click.command()
@click.argument("session")
@click.option("--run", "run_id", metavar="RUN", help="Only what this run changed, by its id.")
@arguments.token_option
def diff(session: str, run_id: str | None, token: str | None) -> int:
    """Print what a session's runs changed in its folder, as a unified diff. What was undone is not in it.

    SESSION is an id, a unique beginning or end of one, or `last`. On a terminal it has colours; into a pipe or a file it goes
    as it is, ready for `git apply`.

    \b
    Example:
      tower diff last
      tower diff last > changes.patch
    """
    text = asyncio.run(_fetch_diff(session, run_id, token))
    if not text:
        console.print_line("nothing was changed")
    elif not output.is_terminal():
        output.write(text.encode(errors="replace"))
    else:
        from switchtower.cli import diffs

        has_colour = console.supports_colour(1)
        for line, colour in diffs.colour_lines(text):
            shown = console.escape_unprintable(line)
            output.write_line(console.paint(shown, colour) if colour and has_colour else shown)
    return console.ExitStatus.OK


async def _fetch_diff(session_ref: str, run_id: str | None, token: str | None) -> str:
    from switchtower.cli import lookup

    async with lookup.open_session(session_ref, token) as (client, session_id):
        return await client.get_diff(session_id, run_id=run_id)
