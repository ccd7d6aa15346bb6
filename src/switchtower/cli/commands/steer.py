"""`tower steer`: a message into a run that is under way."""

import asyncio

import click

from switchtower.cli import arguments, console, output


@click.command()
@click.argument("session")
@click.argument("text")
@click.option("--json", "as_json", is_flag=True, help="Print one object: the message's id, and the run's if it started one.")
@arguments.token_option
def steer(session: str, text: str, as_json: bool, token: str | None) -> int:
    """Tell a run that is under way something: the model reads it at its next step. Prints the message's id.

    SESSION is an id, a unique beginning or end of one, or `last`; TEXT may be `-` for stdin. If no run is under way, the message
    starts one, and the run's id is printed. The same as `tower send --steer`.

    \b
    Example:
      tower steer last "leave the tests alone"
    """
    return asyncio.run(_steer(session, arguments.read_message(text), token, as_json=as_json))


async def _steer(session_ref: str, text: str, token: str | None, *, as_json: bool) -> int:
    import msgspec

    from switchtower.cli import lookup
    from switchtower.cli.commands import send

    async with lookup.open_session(session_ref, token) as (client, session_id):
        if not as_json:
            return await send.queue_message(client, session_id, text, "steer")
        queued = await client.queue_message(session_id, text, "steer")
        output.write_line(msgspec.json.encode({"sessionId": session_id, **msgspec.to_builtins(queued)}))
        return console.ExitStatus.OK
