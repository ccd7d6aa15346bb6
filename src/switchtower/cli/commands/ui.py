"""`tower ui`, and `tower` alone: the terminal UI."""

import asyncio
from pathlib import Path

import click

from switchtower.cli import arguments, console


@click.command()
@click.argument("session", required=False)
@arguments.folder("Where new sessions work.")
def ui(session: str | None, folder: Path) -> int:
    """Open the terminal UI: sessions, conversations, approvals, terminals. `tower` alone does too.

    SESSION is an id, a unique beginning or end of one, or `last`: it is shown at once.

    \b
    Example:
      tower ui last
    """
    return open_(session, folder)


def open_(meant: str | None, folder: Path | None) -> int:
    from switchtower import config
    from switchtower.cli.commands import setup
    from switchtower.tui import app

    session_id = asyncio.run(_named(meant)) if meant is not None else None
    if meant is None and (code := setup.at_first_start(config.load())) != console.Exit.OK:
        return code
    return app.run(config.load(), session_id=session_id, workspace=str(folder) if folder is not None else None)


async def _named(meant: str) -> str:
    from switchtower.cli import lookup

    async with lookup.opened(meant) as (_, session_id):
        return session_id
