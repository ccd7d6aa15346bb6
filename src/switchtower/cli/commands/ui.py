"""`tower ui`, and `tower` alone: the terminal UI."""

import asyncio
from pathlib import Path

import click

from switchtower.cli import arguments, console


@click.command()
@click.argument("session", required=False)
@arguments.folder_option("Where new sessions work.")
def ui(session: str | None, folder: Path) -> int:
    """Open the terminal UI: sessions, conversations, approvals, terminals. `tower` alone does too.

    SESSION is an id, a unique beginning or end of one, or `last`: it is shown at once.

    \b
    Example:
      tower ui last
    """
    return open_ui(session, folder)


def open_ui(session_ref: str | None, folder: Path | None) -> int:
    from switchtower import config
    from switchtower.cli.commands import setup
    from switchtower.tui import app

    session_id = asyncio.run(_find_session(session_ref)) if session_ref is not None else None
    if session_ref is None and (code := setup.run_first_setup(config.load())) != console.ExitStatus.OK:
        return code
    return app.run_app(config.load(), session_id=session_id, workspace=str(folder) if folder is not None else None)


async def _find_session(session_ref: str) -> str:
    from switchtower.cli import lookup

    async with lookup.open_session(session_ref) as (_, session_id):
        return session_id
