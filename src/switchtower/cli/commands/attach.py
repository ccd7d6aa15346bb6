"""`tower attach`: a session's events from any point of its history, and then as they happen."""

import asyncio
from typing import TYPE_CHECKING

import click

from switchtower.cli import arguments, console, output

if TYPE_CHECKING:
    from collections.abc import Callable

    from switchtower.cli.asker import QuestionQueue
    from switchtower.client.client import DaemonClient
    from switchtower.client.frames import PushEvent
    from switchtower.client.session import SessionSubscription
    from switchtower.protocols.push import extensions

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
    from switchtower.cli import lookup

    async with lookup.open_session(session_ref, token) as (client, session_id):
        if form == "text" and follow and (about := await _find_program(client, session_id)) is not None:
            return await _join_program(client, about, from_seq, read_only=read_only)
        return await _follow(client, session_id, from_seq, form, follow=follow, prompts=prompts and not read_only)


async def _find_program(client: "DaemonClient", session_id: str) -> "extensions.SessionInfo | None":
    """What is known of the session, if it is a program in a terminal."""
    from switchtower.client import errors

    if not client.supports("terminals"):
        return None
    try:
        about = await client.get_session(session_id)
    except errors.RequestFailed:
        return None  # attaching says better why not
    return about if about.terminal is not None else None


async def _join_program(client: "DaemonClient", about: "extensions.SessionInfo", from_seq: int, *, read_only: bool) -> int:
    from switchtower.cli import seat

    assert about.terminal is not None, "a program has a terminal"
    after_seq = from_seq or max(0, about.terminal.screenSeq - 1)
    has_ended = about.activeRunId is None
    if has_ended and after_seq >= about.lastSeq:
        parted = seat.DetachResult(has_ended=True, exit_code=about.terminal.exitCode)
    else:
        place = seat.AttachOptions(about.sessionId, after_seq, answered_seq=about.lastSeq, read_only=read_only or has_ended)
        parted = await seat.TerminalAttachment(client, place).run()
    return seat.print_detach_result(parted, about.sessionId)


async def _follow(client: "DaemonClient", session_id: str, from_seq: int, form: str, *, follow: bool, prompts: bool) -> int:
    from switchtower.cli import signals, through
    from switchtower.cli.asker import QuestionQueue

    lines: list[bytes] = []
    with signals.catch_interrupts() as interrupted:
        session = client.subscribe(session_id, last_seen_seq=from_seq, on_lost=through.print_connection_lost)
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
    from switchtower.cli.screens import TranscriptOutput
    from switchtower.cli.view import EventPrinter

    return EventPrinter(TranscriptOutput()).print_event


async def _make_prompting_printer(
    client: "DaemonClient", session: "SessionSubscription", asker: "QuestionQueue", *, prompts: bool
) -> "EventHandler":
    """Also has open approvals and dialogs answered, or says how they are."""
    from switchtower.cli import approval_watch, dialog_watch, keyboard, prompt, waiting
    from switchtower.cli.screens import TranscriptOutput
    from switchtower.cli.view import EventPrinter

    view = EventPrinter(TranscriptOutput())
    session_id, is_shown = session.session_id, output.is_terminal()
    asks_dialogs: dialog_watch.DialogPresenter = dialog_watch.DialogHint(session_id)
    asks_approvals: approval_watch.ApprovalPresenter = approval_watch.ApprovalHint(session_id)
    if prompts and keyboard.is_interactive():
        asks_dialogs = dialog_watch.TerminalDialogPresenter(asker, client, session_id, is_shown=is_shown)
        asks_approvals = prompt.ApprovalPrompt(asker, client, session_id, is_shown=is_shown, is_own_run=False)
    dialogs, approvals = dialog_watch.DialogWatch(session, asks_dialogs), approval_watch.ApprovalWatch(session, asks_approvals)
    if session.last_seen_seq:
        # Who comes back may have been asked before.
        before = await waiting.find_open_requests(client, session_id)
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
