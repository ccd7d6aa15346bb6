"""`tower exec`: any program in a terminal that the daemon keeps, with this terminal joined to it."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from switchtower.cli import arguments, console, output

if TYPE_CHECKING:
    from switchtower import config
    from switchtower.client.client import DaemonClient
    from switchtower.protocols.push import messages


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("program", nargs=-1, required=True, metavar="PROGRAM [ARGS]...", type=click.UNPROCESSED)
@arguments.text_option("--tool", "Whose questions to look for: codex, claude, gemini, iflow, opencode; else PROGRAM's own name.")
@arguments.text_option("--name", "What to call the session.")
@arguments.folder_option("Where to run it.  [default: here]")
@arguments.sandbox_option("Where it runs, by default on the machine itself unless the daemon is configured for more")
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
        if word != arguments.make_sendable(word):
            raise click.UsageError(f"`{arguments.make_sendable(word)}` is not UTF-8")
    settings = config.load()
    return asyncio.run(_exec(settings, _make_session_request(program, tool, folder, sandbox), name, detach, as_json))


def _make_session_request(
    program: tuple[str, ...], tool: str | None, folder: Path, sandbox: str | None
) -> "messages.StartSession":
    from switchtower.cli import raw_terminal
    from switchtower.client import workspace
    from switchtower.protocols.push import messages

    cols, rows = raw_terminal.get_window_size() or (None, None)
    return messages.StartSession(
        mode="interactive" if raw_terminal.has_terminal() else "headless",
        provider="terminal",
        sandboxProvider=cast(Any, sandbox or "auto"),
        repo=workspace.describe_repo(folder),
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
    from switchtower.client.client import DaemonClient

    with signals.catch_interrupts() as interrupted:
        try:
            client = await signals.run_unless_interrupted(interrupted, DaemonClient.connect(settings))
        except signals.Interrupted:
            return console.ExitStatus.CANCELLED
        # Not interruptible: it may have been started, and only its id lets us end it.
        session_id = (await client.start_session(wanted)).sessionId
    async with client:
        if interrupted.is_set():
            await client.cancel_run(session_id)
            return console.ExitStatus.CANCELLED
        if name is not None:
            await client.configure_session(session_id, title=name)
        if detach:
            if (reason := await _find_start_failure(client, session_id)) is not None:
                await client.delete_session(session_id)
                console.print_error(reason)
                return console.ExitStatus.NOT_STARTED
            output.write_line(msgspec.json.encode({"sessionId": session_id}) if as_json else session_id)
            return console.ExitStatus.OK
        parted = await seat.TerminalAttachment(client, seat.AttachOptions(session_id, is_ours=True, on_stderr=as_json)).run()
    if as_json:
        outcome = parted.complete.outcome if parted.complete is not None else None
        ended = {"sessionId": session_id, "ended": parted.has_ended, "outcome": outcome, "exitCode": parted.exit_code}
        output.write_line(msgspec.json.encode(ended))
    return seat.print_detach_result(parted, session_id)


async def _find_start_failure(client: "DaemonClient", session_id: str) -> str | None:
    """Waits until the program runs, or has failed to start: then why."""
    from contextlib import aclosing

    from switchtower.protocols.push import messages

    reason = None
    async with aclosing(client.subscribe(session_id).stream_events()) as events:
        async for event in events:
            if isinstance(event.payload, messages.Failure) and event.payload.code == "NOT_STARTED":
                reason = event.payload.message
            elif isinstance(event.payload, messages.ToolCall | messages.RunComplete):
                break
    return reason
