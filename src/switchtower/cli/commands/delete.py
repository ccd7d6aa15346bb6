"""`tower delete`: removes sessions for good."""

import asyncio
import sys

import click

from switchtower.cli import arguments, console


@click.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first.")
@arguments.token_option
def delete(sessions: tuple[str, ...], yes: bool, token: str | None) -> int:
    """Delete sessions for good, with all that the journal has of them. The files that they worked on stay.

    SESSION is an id, a unique beginning or end of one, or `last`. What runs is not deleted: cancel it first.

    \b
    Example:
      tower delete last
      tower delete 3QV6SB3 1CKSY4 --yes
    """
    return asyncio.run(_delete(sessions, token, yes=yes))


async def _delete(session_ref: tuple[str, ...], token: str | None, *, yes: bool) -> int:
    from switchtower import config
    from switchtower.cli import lookup
    from switchtower.client import errors
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(config.load()) as client:
        # All are looked up before the first is gone: `last` means something else then.
        found = list(dict.fromkeys([await lookup.find_session_id(client, one) for one in session_ref]))
        for session_id in found:
            title = (await client.get_session(session_id)).title
            console.print_line(f"{session_id}  {title}")
        if not yes and not _confirm_deletion(len(found)):
            raise errors.ClientError("nothing was deleted", hint="say `y`, or give `--yes`")
        for session_id in found:
            if token is not None:
                client.remember_attach_token(session_id, token)
            await client.delete_session(session_id)
            console.print_line(f"deleted {session_id}")
    return console.ExitStatus.OK


def _confirm_deletion(count: int) -> bool:
    if not sys.stdin.isatty():
        return False
    what = "this session" if count == 1 else f"these {count} sessions"
    return input(f"delete {what} for good? [y/N] ").strip().lower() in ("y", "yes")
