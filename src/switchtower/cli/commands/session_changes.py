"""Commands that change a session: `tower configure`, `rename`, `fork`, `diff`, `undo` and `compact`."""

import asyncio
from typing import Any

import click

from switchtower.cli import arguments, console, output


@click.command()
@click.argument("session")
@arguments.text_option("--provider", "The model provider, or one of the configured models.")
@arguments.text_option("--model", "One of the provider's models.")
@arguments.policy_option("What it may do unasked")
@arguments.thinking_option("How long the model thinks, where it can")
@click.option("--title", metavar="TEXT", callback=arguments.validate_sendable, help="What the session is called.")
@arguments.token_option
def configure(session: str, token: str | None, **changes: str | None) -> int:
    """Change how a session works from its next run on. What is not named stays as it is.

    SESSION is an id, a unique beginning or end of one, or `last`; `tower show` prints how it is now.

    \b
    Example:
      tower configure last --policy auto --thinking high
      tower configure last --provider ollama --model qwen3
    """
    wanted = {name: value for name, value in changes.items() if value is not None}
    if not wanted:
        raise click.UsageError("nothing to change; hint: name something, such as `--policy ask`")
    asyncio.run(_configure(session, wanted, token))
    console.print_line(f"configured: {', '.join(f'{name}={value}' for name, value in wanted.items())}")
    if wanted.get("policy") == "yolo":
        console.print_line("warning: from its next run on this session asks nobody about anything", "yellow")
    return console.ExitStatus.OK


async def _configure(session_ref: str, wanted: dict[str, Any], token: str | None) -> None:
    from switchtower.cli import session_lookup

    async with session_lookup.open_session(session_ref, token) as (client, session_id):
        await client.configure_session(session_id, **wanted)


@click.command()
@click.argument("session")
@click.argument("title", callback=arguments.validate_sendable)
@arguments.token_option
def rename(session: str, title: str, token: str | None) -> int:
    """Give a session a title, which lists and documents show.

    SESSION is an id, a unique beginning or end of one, or `last`.

    \b
    Example:
      tower rename last "the failing build"
    """
    session_id = asyncio.run(_rename(session, title, token))
    console.print_line(f"{session_id} is called “{title}” now")
    return console.ExitStatus.OK


async def _rename(session_ref: str, title: str, token: str | None) -> str:
    from switchtower.cli import session_lookup

    async with session_lookup.open_session(session_ref, token) as (client, session_id):
        await client.configure_session(session_id, title=title)
        return session_id


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

    from switchtower.cli import session_lookup

    async with session_lookup.open_session(session_ref, token) as (client, session_id):
        forked = await client.fork_session(session_id, before_seq=before)
    if as_json:
        output.write_line(msgspec.json.encode({"sessionId": forked.sessionId, "text": forked.text}))
        return console.ExitStatus.OK
    output.write_line(forked.sessionId)
    if forked.text:
        console.print_line(f"forked before: {' '.join(forked.text.split())[:200]}", "dim")
    return console.ExitStatus.OK


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
        from switchtower.presentation import approval_text

        has_colour = console.supports_colour(1)
        for line, colour in approval_text.colour_lines(text):
            shown = console.escape_unprintable(line)
            output.write_line(console.paint(shown, colour) if colour and has_colour else shown)
    return console.ExitStatus.OK


async def _fetch_diff(session_ref: str, run_id: str | None, token: str | None) -> str:
    from switchtower.cli import session_lookup

    async with session_lookup.open_session(session_ref, token) as (client, session_id):
        return await client.get_diff(session_id, run_id=run_id)


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
    from switchtower.cli import session_lookup
    from switchtower.cli.runs.run_watch import MaintenanceRun

    async with session_lookup.open_session(session_ref, token) as (client, session_id):
        chore = MaintenanceRun("Workspace restored")
        code = await chore.run(client, session_id, lambda: client.undo_run(session_id, redo=redo, force=force))
    if chore.result is not None and "; left alone: " in chore.result:
        _print_incomplete(session_id, redo=redo)
    return code


def _print_incomplete(session_id: str, *, redo: bool) -> None:
    again = f"tower undo {session_id}"
    # The undo counts as done, so `--force` alone would apply to the next run. The hint first returns to the previous state.
    what, forced = ("redo", f"{again} && {again} --redo --force") if redo else ("undo", f"{again} --redo && {again} --force")
    console.print_line(
        f"the {what} counts as done, without the files that somebody has changed since; "
        f"hint: `{forced}` overwrites them too, and those changes are lost",
        "yellow",
    )


@click.command()
@click.argument("session")
@click.argument("instructions", required=False, default="")
@arguments.token_option
def compact(session: str, instructions: str, token: str | None) -> int:
    """Have the beginning of a session's conversation summarised, so that its context is small again.

    SESSION is an id, a unique beginning or end of one, or `last`; INSTRUCTIONS tell the model what matters. The journal keeps
    everything. Ctrl-C cancels it.

    \b
    Example:
      tower compact last
      tower compact last "keep the names of all failing tests"
    """
    return asyncio.run(_compact(session, arguments.make_sendable(instructions), token))


async def _compact(session_ref: str, instructions: str, token: str | None) -> int:
    from switchtower.cli import session_lookup
    from switchtower.cli.runs.run_watch import MaintenanceRun

    async with session_lookup.open_session(session_ref, token) as (client, session_id):
        chore = MaintenanceRun("Context compacted")
        return await chore.run(client, session_id, lambda: client.compact_session(session_id, instructions))
