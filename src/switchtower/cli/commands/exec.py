"""`tower exec`: any program in a terminal that the daemon keeps, with this terminal joined to it."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from switchtower.cli import arguments, console, output

if TYPE_CHECKING:
    from switchtower import config
    from switchtower.client.client import Client
    from switchtower.protocols.push import messages


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("program", nargs=-1, required=True, metavar="PROGRAM [ARGS]...", type=click.UNPROCESSED)
@arguments.text_option("--tool", "Whose questions to look for: codex, claude, gemini, iflow, opencode; else PROGRAM's own name.")
@arguments.text_option("--name", "What to call the session.")
@arguments.folder("Where to run it.  [default: here]")
@arguments.sandbox("Where it runs, by default on the machine itself unless the daemon is configured for more")
@click.option("--detach", is_flag=True, help="Print the session's id and leave it running.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: how it ended, or with --detach the id.")
def exec(
    program: tuple[str, ...],
    tool: str | None,
    name: str | None,
    folder: Path,
    sandbox: str | None,
    detach: bool,
    as_json: bool,
) -> int:
    """Run any program in a terminal that outlives this one, and exit with its exit code.

    What you type goes to the program. Ctrl-] or Ctrl-\\ twice leaves it running, and `tower attach` comes back to it, from here
    or from elsewhere. Its questions can be answered by typing, and also with `tower approve` or from another client.

    Without a terminal, stdin is passed on until it ends, and the output streams to stdout as the program's terminal has it. With
    --json the output goes to stderr.

    \b
    Exit codes:
      the program's own, 127 when it cannot be started (also with --detach, which leaves no session then), 64 wrong usage

    \b
    Example:
      tower exec -- codex "fix the failing test"
      tower exec --detach --name nightly -- make test
      tower attach last
    """
    from switchtower import config

    for word in program:
        if word != arguments.sendable(word):
            raise click.UsageError(f"`{arguments.sendable(word)}` is not UTF-8")
    settings = config.load()
    return asyncio.run(_exec(settings, _session(program, tool, folder, sandbox), name, detach, as_json))


def _session(program: tuple[str, ...], tool: str | None, folder: Path, sandbox: str | None) -> "messages.StartSession":
    from switchtower.cli import raw_terminal
    from switchtower.client import workspace
    from switchtower.protocols.push import messages

    cols, rows = raw_terminal.size() or (None, None)
    return messages.StartSession(
        mode="interactive" if raw_terminal.is_there() else "headless",
        provider="terminal",
        sandboxProvider=cast(Any, sandbox or "auto"),
        repo=workspace.describe(folder),
        metadata={"source": "cli"},
        engine="pty",
        command=list(program),
        tool=tool,
        cols=cols,
        rows=rows,
    )


async def _exec(
    settings: "config.Settings", wanted: "messages.StartSession", name: str | None, detach: bool, as_json: bool
) -> int:
    import msgspec

    from switchtower.cli import seat, signals
    from switchtower.client.client import Client

    with signals.interruption() as interrupted:
        try:
            client = await signals.unless(interrupted, Client.connect(settings))
        except signals.Interrupted:
            return console.Exit.CANCELLED
        # Not interruptible: it may have been started, and only its id lets us end it.
        session_id = (await client.start_session(wanted)).sessionId
    async with client:
        if interrupted.is_set():
            await client.cancel(session_id)
            return console.Exit.CANCELLED
        if name is not None:
            await client.configure(session_id, title=name)
        if detach:
            if (reason := await _reason_not_started(client, session_id)) is not None:
                await client.delete(session_id)
                console.fail(reason)
                return console.Exit.NOT_STARTED
            output.line(msgspec.json.encode({"sessionId": session_id}) if as_json else session_id)
            return console.Exit.OK
        parted = await seat.Seat(client, seat.Place(session_id, is_ours=True, on_stderr=as_json)).sit()
    if as_json:
        outcome = parted.complete.outcome if parted.complete is not None else None
        ended = {"sessionId": session_id, "ended": parted.has_ended, "outcome": outcome, "exitCode": parted.exit_code}
        output.line(msgspec.json.encode(ended))
    return seat.said_goodbye(parted, session_id)


async def _reason_not_started(client: "Client", session_id: str) -> str | None:
    """Waits until the program runs, or has failed to start: then why."""
    from contextlib import aclosing

    from switchtower.protocols.push import messages

    reason = None
    async with aclosing(client.session(session_id).events()) as events:
        async for event in events:
            if isinstance(event.payload, messages.Failure) and event.payload.code == "NOT_STARTED":
                reason = event.payload.message
            elif isinstance(event.payload, messages.ToolCall | messages.RunComplete):
                break
    return reason
