"""`tower attach`: a session's events from any point of its history, and then as they happen."""

import asyncio
from typing import TYPE_CHECKING

import click

from switchtower.cli import arguments, console, output

if TYPE_CHECKING:
    from collections.abc import Callable

    from switchtower.cli.asker import Asker
    from switchtower.client.client import Client
    from switchtower.client.frames import Event
    from switchtower.client.session import Session
    from switchtower.protocols.push import extensions

    Show = Callable[[Event], None]


@click.command()
@click.argument("session")
@click.option("--from", "from_seq", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Only events after this seq.")
@click.option("--json", "as_json", is_flag=True, help="With --no-follow: print one array of events.")
@click.option("--jsonl", "as_jsonl", is_flag=True, help="Print each event as it comes, one a line.")
@click.option("--follow/--no-follow", default=True, help="Stay for what happens next, or stop at the present.  [default: follow]")
@click.option("--read-only", is_flag=True, help="Only show it: ask nothing, and pass on no key to a program in a terminal.")
@click.option("--no-prompt", is_flag=True, help="Ask nothing here, and leave approvals and dialogs to others.")
@arguments.token
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
    meant: str, from_seq: int, token: str | None, form: str, *, follow: bool, read_only: bool, prompts: bool
) -> int:
    from switchtower.cli import lookup

    async with lookup.opened(meant, token) as (client, session_id):
        if form == "text" and follow and (about := await _program(client, session_id)) is not None:
            return await _join(client, about, from_seq, read_only=read_only)
        return await _follow(client, session_id, from_seq, form, follow=follow, prompts=prompts and not read_only)


async def _program(client: "Client", session_id: str) -> "extensions.SessionInfo | None":
    """What is known of the session, if it is a program in a terminal."""
    from switchtower.client import errors

    if not client.offers("terminals"):
        return None
    try:
        about = await client.get_session(session_id)
    except errors.RequestFailed:
        return None  # attaching says better why not
    return about if about.terminal is not None else None


async def _join(client: "Client", about: "extensions.SessionInfo", from_seq: int, *, read_only: bool) -> int:
    from switchtower.cli import seat

    assert about.terminal is not None, "a program has a terminal"
    after_seq = from_seq or max(0, about.terminal.screenSeq - 1)
    has_ended = about.activeRunId is None
    if has_ended and after_seq >= about.lastSeq:
        parted = seat.Parted(has_ended=True, exit_code=about.terminal.exitCode)
    else:
        place = seat.Place(about.sessionId, after_seq, answered_seq=about.lastSeq, read_only=read_only or has_ended)
        parted = await seat.Seat(client, place).sit()
    return seat.said_goodbye(parted, about.sessionId)


async def _follow(client: "Client", session_id: str, from_seq: int, form: str, *, follow: bool, prompts: bool) -> int:
    from switchtower.cli import signals, through
    from switchtower.cli.asker import Asker

    lines: list[bytes] = []
    with signals.interruption() as interrupted:
        session = client.session(session_id, last_seen_seq=from_seq, on_lost=through.say_lost)
        asker = Asker()
        if form != "text":
            show = _keeper(form, lines)
        elif not follow:
            show = _shower()
        else:
            show = await _asking_shower(client, session, asker, prompts=prompts)
        watching = asyncio.create_task(_watch(session, follow, show))
        asked = asyncio.create_task(interrupted.wait())
        try:
            await asyncio.wait({watching, asked}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            else:
                console.say(f"detached; come back with `tower attach {session_id} --from {session.last_seen_seq}`", "dim")
        finally:
            watching.cancel()
            asked.cancel()
            await asker.close()
    if form == "json":
        output.line(b"[" + b",".join(lines) + b"]")
    return console.Exit.OK


def _keeper(form: str, lines: list[bytes]) -> "Show":
    return (lambda event: lines.append(event.line)) if form == "json" else (lambda event: output.line(event.line))


def _shower() -> "Show":
    from switchtower.cli.screens import Transcript
    from switchtower.cli.view import View

    return View(Transcript()).show


async def _asking_shower(client: "Client", session: "Session", asker: "Asker", *, prompts: bool) -> "Show":
    """Also has open approvals and dialogs answered, or says how they are."""
    from switchtower.cli import approval_watch, dialog_watch, keyboard, prompt, waiting
    from switchtower.cli.screens import Transcript
    from switchtower.cli.view import View

    view = View(Transcript())
    session_id, is_shown = session.session_id, output.is_terminal()
    asks_dialogs: dialog_watch.Asks = dialog_watch.ByOthers(session_id)
    asks_approvals: approval_watch.Asks = approval_watch.ByOthers(session_id)
    if prompts and keyboard.is_possible():
        asks_dialogs = dialog_watch.AtTerminal(asker, client, session_id, is_shown=is_shown)
        asks_approvals = prompt.Prompt(asker, client, session_id, is_shown=is_shown, ours=False)
    dialogs, approvals = dialog_watch.DialogWatch(session, asks_dialogs), approval_watch.ApprovalWatch(session, asks_approvals)
    if session.last_seen_seq:
        # Who comes back may have been asked before.
        before = await waiting.look(client, session_id)
        for seq, dialog in before.dialogs.dialogs.values():
            if seq <= session.last_seen_seq:
                view.dialog(dialog)
                dialogs.found(seq, dialog)
        for asked in before.approvals.values():
            if asked.seq <= session.last_seen_seq:
                view.question(asked.approval)
                approvals.found(asked)

    def show(event: "Event") -> None:
        console.end_piece()  # a question that waits for its answer keeps its own line
        view.show(event)
        dialogs.saw(event)
        approvals.saw(event)

    return show


async def _watch(session: "Session", follow: bool, show: "Show") -> None:
    from contextlib import aclosing

    until_seq = None if follow else (await session.attach()).replay.toSeq
    if until_seq is not None and session.last_seen_seq >= until_seq:
        return
    async with aclosing(session.events()) as events:
        async for event in events:
            show(event)
            if until_seq is not None and session.last_seen_seq >= until_seq:
                return
