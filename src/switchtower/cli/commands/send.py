"""`tower send`: a message into a session that is there already."""

import asyncio
from typing import TYPE_CHECKING

import click

from switchtower.cli import arguments, console, output

if TYPE_CHECKING:
    from switchtower.client.client import DaemonClient, MessageDelivery


@click.command()
@click.argument("session")
@click.argument("text")
@click.option("--steer", is_flag=True, help="Into the run that is under way: the model reads it at its next step.")
@click.option("--follow-up", is_flag=True, help="For after the run that is under way.")
@click.option("--wait", is_flag=True, help="Show the run until it ends; the exit code is then the run's, as in `tower run`.")
@click.option("--no-prompt", is_flag=True, help="With --wait: ask nothing here, and leave approvals and dialogs to others.")
@arguments.token_option
def send(session: str, text: str, steer: bool, follow_up: bool, wait: bool, no_prompt: bool, token: str | None) -> int:
    """Send a message to a session, which starts a run, and print the run's id.

    SESSION is an id, a unique beginning or end of one, or `last`; TEXT may be `-` for stdin. With --wait the answer is printed
    instead; approvals and dialogs are asked at the terminal, or left to `tower approve` and `tower answer` where there is none.
    Ctrl-C then stops waiting, and the run goes on.

    With --steer or --follow-up the message joins a run that is under way, and its own id is printed. If none is, it starts one.

    \b
    Example:
      tower send last "read README.md" --wait
      tower send last "leave the tests alone" --steer
    """
    if sum((steer, follow_up, wait)) > 1:
        raise click.UsageError("`--steer`, `--follow-up` and `--wait` exclude each other; hint: watch with `tower attach`")
    if no_prompt and not wait:
        raise click.UsageError("`--no-prompt` is for who waits; hint: add `--wait`")
    text = arguments.read_message(text)
    delivery: MessageDelivery | None = "steer" if steer else "follow_up" if follow_up else None
    return asyncio.run(_send(session, text, delivery, token, wait=wait, prompts=not no_prompt))


async def _send(
    session_ref: str, text: str, delivery: "MessageDelivery | None", token: str | None, *, wait: bool, prompts: bool
) -> int:
    from switchtower.cli import lookup

    async with lookup.open_session(session_ref, token) as (client, session_id):
        if delivery is not None:
            return await queue_message(client, session_id, text, delivery)
        if wait:
            return await _send_and_wait(client, session_id, text, prompts=prompts)
        output.write_line(await _start_run(client, session_id, text))
        return console.ExitStatus.OK


async def queue_message(client: "DaemonClient", session_id: str, text: str, delivery: "MessageDelivery") -> int:
    queued = await client.queue_message(session_id, text, delivery)
    output.write_line(queued.runId or queued.messageId)
    if queued.runId is not None:
        console.print_line("no run was under way, so this started one")
    else:
        when = "at its next step" if delivery == "steer" else "when the run has ended well"
        console.print_line(f"queued: the model reads it {when}")
    return console.ExitStatus.OK


async def _send_and_wait(client: "DaemonClient", session_id: str, text: str, *, prompts: bool) -> int:
    from switchtower.cli import approval_watch, dialog_watch, keyboard, prompt, through
    from switchtower.cli.asker import QuestionQueue
    from switchtower.cli.follow import RunFollower
    from switchtower.cli.screens import ProgressOutput
    from switchtower.cli.view import EventPrinter
    from switchtower.client.frames import PushEvent
    from switchtower.protocols.push import messages

    head = (await client.subscribe(session_id).attach()).replay.toSeq
    run_id = await _start_run(client, session_id, text)
    session = client.subscribe(session_id, last_seen_seq=head, on_lost=through.print_connection_lost)
    view, asker = EventPrinter(ProgressOutput()), QuestionQueue()
    dialogs: dialog_watch.DialogPresenter = dialog_watch.DialogHint(session_id)
    approvals: approval_watch.ApprovalPresenter = approval_watch.ApprovalHint(session_id)
    if prompts and keyboard.is_interactive():
        dialogs = dialog_watch.TerminalDialogPresenter(asker, client, session_id)
        approvals = prompt.ApprovalPrompt(asker, client, session_id, is_own_run=False)
    watch = dialog_watch.DialogWatch(session, dialogs)

    def show(event: PushEvent) -> None:
        view.print_event(event)
        approvals.on_event(event)
        watch.on_event(event)

    def decide(approval: messages.ApprovalRequired) -> None:
        approvals.ask(approval, run_id)

    try:
        follower = RunFollower(client, session, run_id, show=show, decide=decide)
        return (await follower.follow_to_end()).headless.exitCodeHint
    finally:
        view.end()
        await asker.close()


async def _start_run(client: "DaemonClient", session_id: str, text: str) -> str:
    from switchtower.client import errors

    try:
        return await client.send_message(session_id, text)
    except errors.RequestFailed as problem:
        if problem.code == "RUN_IN_PROGRESS":
            problem.hint = "join it with `--steer`, or wait for its end with `--follow-up`"
        raise
