"""`tower attach` prints a session's events from any point of its history and follows it, `tower exec` runs a program in a
terminal that the daemon keeps, and `tower ui` opens the terminal UI."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from switchtower.cli import arguments, console, output

if TYPE_CHECKING:
    from collections.abc import Callable

    from switchtower import config
    from switchtower.cli.terminal.user_input import QuestionQueue
    from switchtower.client.client import DaemonClient
    from switchtower.client.frames import PushEvent
    from switchtower.client.subscription import SessionSubscription
    from switchtower.protocols.push import extension_messages, messages


if TYPE_CHECKING:
    EventHandler = Callable[[PushEvent], None]


@click.command()
@click.argument("session")
@click.option("--from", "from_seq", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Only events after this seq.")
@click.option("--json", "as_json", is_flag=True, help="With --no-follow: print one array of events.")
@click.option("--jsonl", "as_jsonl", is_flag=True, help="Print each event as it comes, one a line.")
@click.option("--follow/--no-follow", default=True, help="Stay for what happens next, or stop at the present.  [default: follow]")
@click.option("--read-only", is_flag=True, help="Only show it: ask nothing, and pass on no key to a program in a terminal.")
@click.option("--no-prompt", is_flag=True, help="Ask nothing here, and leave approvals and dialogs to others.")
@arguments.token_option
def attach(
    session: str,
    from_seq: int,
    as_json: bool,
    as_jsonl: bool,
    follow: bool,
    read_only: bool,
    no_prompt: bool,
    token: str | None,
) -> int:
    """Watch a session from any point of its history. Ctrl-C detaches; the session goes on.

    SESSION is an id, a unique beginning or end of one, or `last`. At a terminal, the approvals and dialogs that
    are open or come up can be answered here; elsewhere they are left to `tower approve` and `tower answer`.

    To a program in a terminal, as `tower exec` starts one, this terminal is joined: its screen is painted again, what you type
    goes to it, Ctrl-] or Ctrl-\\ twice leaves it running, and the exit code is the program's.

    \b
    Example:
      tower attach last
      tower attach last --read-only
      tower attach last --from 120 --jsonl --no-follow
    """
    if as_json and (as_jsonl or follow):
        raise click.UsageError("`--json` prints one array, so it wants `--no-follow` and excludes `--jsonl`")
    form = "json" if as_json else "jsonl" if as_jsonl else "text"
    return asyncio.run(_attach(session, from_seq, token, form, follow=follow, read_only=read_only, prompts=not no_prompt))


async def _attach(
    session_ref: str, from_seq: int, token: str | None, form: str, *, follow: bool, read_only: bool, prompts: bool
) -> int:
    from switchtower.cli import session_lookup

    async with session_lookup.open_session(session_ref, token) as (client, session_id):
        if form == "text" and follow and (about := await _find_program(client, session_id)) is not None:
            return await _join_program(client, about, from_seq, read_only=read_only)
        return await _follow(client, session_id, from_seq, form, follow=follow, prompts=prompts and not read_only)


async def _find_program(client: "DaemonClient", session_id: str) -> "extension_messages.SessionInfo | None":
    """Returns the session's details if it is a program in a terminal."""
    from switchtower.client import errors

    if not client.supports("terminals"):
        return None
    try:
        about = await client.get_session(session_id)
    except errors.RequestFailed:
        return None  # attaching reports a better reason
    return about if about.terminal is not None else None


async def _join_program(
    client: "DaemonClient", about: "extension_messages.SessionInfo", from_seq: int, *, read_only: bool
) -> int:
    from switchtower.cli.terminal import attachment

    assert about.terminal is not None, "a program has a terminal"
    after_seq = from_seq or max(0, about.terminal.screenSeq - 1)
    has_ended = about.activeRunId is None
    if has_ended and after_seq >= about.lastSeq:
        parted = attachment.DetachResult(has_ended=True, exit_code=about.terminal.exitCode)
    else:
        place = attachment.AttachOptions(about.sessionId, after_seq, answered_seq=about.lastSeq, read_only=read_only or has_ended)
        parted = await attachment.TerminalAttachment(client, place).run()
    return attachment.print_detach_result(parted, about.sessionId)


async def _follow(client: "DaemonClient", session_id: str, from_seq: int, form: str, *, follow: bool, prompts: bool) -> int:
    from switchtower.cli import signals
    from switchtower.cli.runs import run_watch
    from switchtower.cli.terminal.user_input import QuestionQueue

    lines: list[bytes] = []
    with signals.catch_interrupts() as interrupted:
        session = client.subscribe(session_id, last_seen_seq=from_seq, on_lost=run_watch.print_connection_lost)
        asker = QuestionQueue()
        if form != "text":
            show = _make_line_writer(form, lines)
        elif not follow:
            show = _make_printer()
        else:
            show = await _make_prompting_printer(client, session, asker, prompts=prompts)
        watching = asyncio.create_task(_watch(session, follow, show))
        asked = asyncio.create_task(interrupted.wait())
        try:
            await asyncio.wait({watching, asked}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            else:
                console.print_line(f"detached; come back with `tower attach {session_id} --from {session.last_seen_seq}`", "dim")
        finally:
            watching.cancel()
            asked.cancel()
            await asker.close()
    if form == "json":
        output.write_line(b"[" + b",".join(lines) + b"]")
    return console.ExitStatus.OK


def _make_line_writer(form: str, lines: list[bytes]) -> "EventHandler":
    return (lambda event: lines.append(event.line)) if form == "json" else (lambda event: output.write_line(event.line))


def _make_printer() -> "EventHandler":
    from switchtower.cli.event_printer import EventPrinter, TranscriptOutput

    return EventPrinter(TranscriptOutput()).print_event


async def _make_prompting_printer(
    client: "DaemonClient", session: "SessionSubscription", asker: "QuestionQueue", *, prompts: bool
) -> "EventHandler":
    """Returns a handler that prints events, and prompts for open approvals and dialogs or prints how to answer them."""
    from switchtower.cli.event_printer import EventPrinter, TranscriptOutput
    from switchtower.cli.terminal import approval_prompt, dialog_prompt, user_input
    from switchtower.client import open_requests

    view = EventPrinter(TranscriptOutput())
    session_id, is_shown = session.session_id, output.is_terminal()
    asks_dialogs: dialog_prompt.DialogPresenter = dialog_prompt.DialogHint(session_id)
    asks_approvals: approval_prompt.ApprovalPresenter = approval_prompt.ApprovalHint(session_id)
    if prompts and user_input.is_interactive():
        asks_dialogs = dialog_prompt.TerminalDialogPresenter(asker, client, session_id, is_shown=is_shown)
        asks_approvals = approval_prompt.ApprovalPrompt(asker, client, session_id, is_shown=is_shown, is_own_run=False)
    dialogs, approvals = dialog_prompt.DialogWatch(session, asks_dialogs), approval_prompt.ApprovalWatch(session, asks_approvals)
    if session.last_seen_seq:
        # These dialogs may have been opened before the events that are printed.
        before = await open_requests.find_open_requests(client, session_id)
        for seq, dialog in before.dialogs.dialogs.values():
            if seq <= session.last_seen_seq:
                view.print_dialog(dialog)
                dialogs.add_earlier(seq, dialog)
        for asked in before.approvals.values():
            if asked.seq <= session.last_seen_seq:
                view.print_approval(asked.approval)
                approvals.add_earlier(asked)

    def show(event: "PushEvent") -> None:
        console.end_line()  # a question that waits for its answer keeps its own line
        view.print_event(event)
        dialogs.on_event(event)
        approvals.on_event(event)

    return show


async def _watch(session: "SessionSubscription", follow: bool, show: "EventHandler") -> None:
    from contextlib import aclosing

    until_seq = None if follow else (await session.attach()).replay.toSeq
    if until_seq is not None and session.last_seen_seq >= until_seq:
        return
    async with aclosing(session.stream_events()) as events:
        async for event in events:
            show(event)
            if until_seq is not None and session.last_seen_seq >= until_seq:
                return


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
    from switchtower.cli.terminal import raw_mode
    from switchtower.client import workspace
    from switchtower.protocols.push import messages

    cols, rows = raw_mode.get_window_size() or (None, None)
    return messages.StartSession(
        mode="interactive" if raw_mode.has_terminal() else "headless",
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

    from switchtower.cli import signals
    from switchtower.cli.terminal import attachment
    from switchtower.client.client import DaemonClient

    with signals.catch_interrupts() as interrupted:
        try:
            client = await signals.run_unless_interrupted(interrupted, DaemonClient.connect(settings))
        except signals.Interrupted:
            return console.ExitStatus.CANCELLED
        # This call is not interruptible: the daemon may have started the program, and only its id allows us to stop it.
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
        parted = await attachment.TerminalAttachment(
            client, attachment.AttachOptions(session_id, is_ours=True, on_stderr=as_json)
        ).run()
    if as_json:
        outcome = parted.complete.outcome if parted.complete is not None else None
        ended = {"sessionId": session_id, "ended": parted.has_ended, "outcome": outcome, "exitCode": parted.exit_code}
        output.write_line(msgspec.json.encode(ended))
    return attachment.print_detach_result(parted, session_id)


async def _find_start_failure(client: "DaemonClient", session_id: str) -> str | None:
    """Waits until the program runs and returns None, or returns the reason why it failed to start."""
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
    from switchtower.cli import session_lookup

    async with session_lookup.open_session(session_ref) as (_, session_id):
        return session_id
