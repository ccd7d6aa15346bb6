"""`tower fork`: a new session that begins with what was said in another."""

import asyncio

import click

from switchtower.cli import arguments, console, output


@click.command()
@click.argument("session")
@click.option(
    "--before",
    type=click.IntRange(1),
    metavar="SEQ",
    help="Only what was said before this message of yours; `tower export --format jsonl` has the numbers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@arguments.token_option
def fork(session: str, before: int | None, as_json: bool, token: str | None) -> int:
    """Begin a new session with the conversation of another, in the same folder and with the same model and policy.

    The id of the new session goes to stdout. The files in the folder stay as they are.

    SESSION is an id, a unique beginning or end of one, or `last`.

    \b
    Example:
      tower fork last --before 120
      tower send "$(tower fork last)" "now in another way"
    """
    return asyncio.run(_fork(session, before, token, as_json=as_json))


async def _fork(session_ref: str, before: int | None, token: str | None, *, as_json: bool) -> int:
    import msgspec

    from switchtower.cli import lookup

    async with lookup.open_session(session_ref, token) as (client, session_id):
        forked = await client.fork_session(session_id, before_seq=before)
    if as_json:
        output.write_line(msgspec.json.encode({"sessionId": forked.sessionId, "text": forked.text}))
        return console.ExitStatus.OK
    output.write_line(forked.sessionId)
    if forked.text:
        console.print_line(f"forked before: {' '.join(forked.text.split())[:200]}", "dim")
    return console.ExitStatus.OK
