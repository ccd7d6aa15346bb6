"""`tower search`: words in everything that was said and done."""

import asyncio
import time

import click

from switchtower.cli import ages, arguments, console, output


@click.command()
@click.argument("text", metavar="TEXT...", nargs=-1, required=True)
@click.option("--session", metavar="SESSION", help="Only in this one.")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="How many at most.")
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
@arguments.token_option
def search(text: tuple[str, ...], session: str | None, limit: int, as_json: bool, token: str | None) -> int:
    """Find words in all sessions: what people and models said, commands, results, titles.

    All words have to be there, in any order; the last may be the beginning of one, and words in double quotes stand together.
    Exit code 0 when something was found, 1 when not.

    \b
    Example:
      tower search flaky test
      tower search '"connection refused"' --limit 5
    """
    return asyncio.run(_search(" ".join(text), session, limit, token, as_json=as_json))


async def _search(text: str, session_ref: str | None, limit: int, token: str | None, *, as_json: bool) -> int:
    import msgspec

    from switchtower import config
    from switchtower.cli import lookup
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(config.load()) as client:
        session_id = await lookup.find_session_id(client, session_ref) if session_ref is not None else None
        if session_id is not None and token is not None:
            client.remember_attach_token(session_id, token)
        hits = await client.search(text, limit, session_id=session_id)
    if as_json:
        output.write_line(msgspec.json.encode(hits))
    else:
        now = time.time()
        for hit in hits:
            said = " ".join(hit.snippet.split())
            title = f"  {hit.title}" if hit.title else ""
            output.write_line(
                console.escape_unprintable(f"{hit.sessionId}  {ages.format_age(now - hit.ts / 1_000)} ago  {hit.kind}{title}")
            )
            output.write_line(console.escape_unprintable(f"    {said}"))
        if not hits:
            console.print_line("nothing was found; hint: fewer words, or only the beginning of the last one")
    return console.ExitStatus.OK if hits else console.ExitStatus.FAILED
