"""`tower undo`: takes back what a session's last run changed in its folder, or makes it again."""

import asyncio

import click

from switchtower.cli import arguments, console


@click.command()
@click.argument("session")
@click.option("--redo", is_flag=True, help="Take back the last undo instead.")
@click.option("--force", is_flag=True, help="Also files that somebody has changed since; those changes are lost.")
@arguments.token_option
def undo(session: str, redo: bool, force: bool, token: str | None) -> int:
    """Take back what a session's last run changed in its folder, and print which files that were.

    SESSION is an id, a unique beginning or end of one, or `last`. Each further undo takes back the run before. A file that
    somebody has changed since the run is left alone and named, unless --force is given. Branches and git's index are not
    touched.

    \b
    Example:
      tower undo last
      tower undo last --redo
    """
    return asyncio.run(_undo(session, redo, force, token))


async def _undo(session_ref: str, redo: bool, force: bool, token: str | None) -> int:
    from switchtower.cli import lookup
    from switchtower.cli.chores import MaintenanceRun

    async with lookup.open_session(session_ref, token) as (client, session_id):
        chore = MaintenanceRun("Workspace restored")
        code = await chore.run(client, session_id, lambda: client.undo_run(session_id, redo=redo, force=force))
    if chore.result is not None and "; left alone: " in chore.result:
        _print_incomplete(session_id, redo=redo)
    return code


def _print_incomplete(session_id: str, *, redo: bool) -> None:
    again = f"tower undo {session_id}"
    # `--force` alone would go on to the next run, for this one is done. So it is first brought back to where it was.
    what, forced = ("redo", f"{again} && {again} --redo --force") if redo else ("undo", f"{again} --redo && {again} --force")
    console.print_line(
        f"the {what} counts as done, without the files that somebody has changed since; "
        f"hint: `{forced}` overwrites them too, and those changes are lost",
        "yellow",
    )
