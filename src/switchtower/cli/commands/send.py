"""`tower send`: a message into a session that is there already."""

import asyncio

import click

from switchtower.cli import arguments, console, output


@click.command()
@click.argument("session")
@click.argument("text")
@click.option("--wait", is_flag=True, help="Show the run until it ends; the exit code is then the run's, as in `tower run`.")
@click.option("--token", metavar="TOKEN", help="The session's attach token, where the daemon asks for it.")
def send(session: str, text: str, wait: bool, token: str | None) -> int:
    """Send a message to a session, which starts a run, and print the run's id.

    SESSION is an id, a unique beginning or end of one, or `last`; TEXT may be `-` for stdin. With --wait the answer is printed
    instead; approvals are left to `tower approve`. Ctrl-C then stops waiting, and the run goes on.

    \b
    Example:
      tower send last "read README.md" --wait
    """
    return asyncio.run(_send(session, arguments.message(text), wait, token))


async def _send(meant: str, text: str, wait: bool, token: str | None) -> int:
    from switchtower import config
    from switchtower.cli import headless, lookup
    from switchtower.cli.follow import Follower
    from switchtower.client.client import Client
    from switchtower.protocols.push import messages

    async with await Client.connect(config.load()) as client:
        session_id = await lookup.session_id(client, meant)
        if token is not None:
            client.remember(session_id, token)
        if not wait:
            output.line(await client.send(session_id, text))
            return console.Exit.OK
        head = (await client.session(session_id).attach()).replay.toSeq
        run_id = await client.send(session_id, text)

        def leave_to_others(approval: messages.ApprovalRequired) -> None:
            console.say(f"waiting for a decision; hint: `tower approve {session_id}` or `tower deny {session_id}`", "yellow")

        session = client.session(session_id, last_seen_seq=head, on_lost=headless.say_lost)
        follower = Follower(client, session, run_id, show=headless.progress_view().show, decide=leave_to_others)
        return (await follower.until_complete()).headless.exitCodeHint
