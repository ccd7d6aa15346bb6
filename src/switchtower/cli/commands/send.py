"""`tower send` sends a message to an existing session, `tower steer` sends one to its active run, and `tower cancel` cancels the
run and keeps the session."""

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
    from switchtower.cli import session_lookup

    async with session_lookup.open_session(session_ref, token) as (client, session_id):
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
    from switchtower.cli.event_printer import EventPrinter, ProgressOutput
    from switchtower.cli.runs import run_watch
    from switchtower.cli.runs.run_watch import RunFollower
    from switchtower.cli.terminal import approval_prompt, dialog_prompt, user_input
    from switchtower.cli.terminal.user_input import QuestionQueue
    from switchtower.client.frames import PushEvent
    from switchtower.protocols.push import messages

    head = (await client.subscribe(session_id).attach()).replay.toSeq
    run_id = await _start_run(client, session_id, text)
    session = client.subscribe(session_id, last_seen_seq=head, on_lost=run_watch.print_connection_lost)
    view, asker = EventPrinter(ProgressOutput()), QuestionQueue()
    dialogs: dialog_prompt.DialogPresenter = dialog_prompt.DialogHint(session_id)
    approvals: approval_prompt.ApprovalPresenter = approval_prompt.ApprovalHint(session_id)
    if prompts and user_input.is_interactive():
        dialogs = dialog_prompt.TerminalDialogPresenter(asker, client, session_id)
        approvals = approval_prompt.ApprovalPrompt(asker, client, session_id, is_own_run=False)
    watch = dialog_prompt.DialogWatch(session, dialogs)

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

    from switchtower.cli import session_lookup

    async with session_lookup.open_session(session_ref, token) as (client, session_id):
        if not as_json:
            return await queue_message(client, session_id, text, "steer")
        queued = await client.queue_message(session_id, text, "steer")
        output.write_line(msgspec.json.encode({"sessionId": session_id, **msgspec.to_builtins(queued)}))
        return console.ExitStatus.OK


@click.command()
@click.argument("session")
@click.option("--force", is_flag=True, help="Kill a program in a terminal, and do not ask it to end first.")
@arguments.token_option
def cancel(session: str, force: bool, token: str | None) -> int:
    """Cancel a session's run. The session stays and takes further messages, unless it is a program in a terminal.

    SESSION is an id, a unique beginning or end of one, or `last`.

    \b
    Example:
      tower cancel last
    """
    return asyncio.run(_cancel(session, token, force=force))


async def _cancel(session_ref: str, token: str | None, *, force: bool) -> int:
    from switchtower.cli import session_lookup

    async with session_lookup.open_session(session_ref, token) as (client, session_id):
        await client.cancel_run(session_id, force=force)
    console.print_line(f"cancelling the run of {session_id}")
    return console.ExitStatus.OK
