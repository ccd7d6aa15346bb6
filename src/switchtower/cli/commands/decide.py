"""`tower approve` and `tower deny`: the decision that a waiting run needs."""

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from switchtower.cli import arguments, console

if TYPE_CHECKING:
    from switchtower.client.client import Client
    from switchtower.protocols.push import messages


class Waiting(NamedTuple):
    session_id: str
    run_id: str
    approval: "messages.ApprovalRequired"


@click.command()
@click.argument("session", required=False)
@click.argument("approval_id", required=False)
@click.option("--always", is_flag=True, help="And what is like it, for the rest of this session; prints the rule.")
@click.option("--comment", metavar="TEXT", callback=arguments.sendable_option, help="Kept with the decision.")
@arguments.token
def approve(session: str | None, approval_id: str | None, always: bool, comment: str | None, token: str | None) -> int:
    """Let a waiting action happen.

    SESSION is an id, a unique beginning or end of one, or `last`; without it, the only session that waits. Without
    APPROVAL_ID the action is shown first, and at a terminal you confirm it. With APPROVAL_ID nothing is approved unless that
    very action still waits. A destructive action is asked about every time: there is no `--always` for it.

    \b
    Example:
      tower approve last
      tower approve last --always
    """
    return asyncio.run(_decide("approve", session, approval_id, comment, token, always=always))


@click.command()
@click.argument("session", required=False)
@click.argument("approval_id", required=False)
@click.option(
    "--comment",
    metavar="TEXT",
    callback=arguments.sendable_option,
    help="Kept with the decision, and sent to an agent's model, which then continues without the action.",
)
@click.option("--stop", is_flag=True, help="End the run, or the program in the terminal, as well.")
@arguments.token
def deny(session: str | None, approval_id: str | None, comment: str | None, stop: bool, token: str | None) -> int:
    """Refuse a waiting action.

    A program in a terminal gets its own "no" and continues. An agent continues when you give it a comment; without one, or
    in a headless run, its run ends. With `--stop`, the program or the run ends in any case.

    SESSION is an id, a unique beginning or end of one, or `last`; without it, the only session that waits. With APPROVAL_ID,
    nothing is denied unless that very question is still open.

    \b
    Example:
      tower deny last --comment "write it to docs/ instead"
      tower deny last --stop
    """
    return asyncio.run(_decide("deny", session, approval_id, comment, token, stop=True if stop else None))


async def _decide(
    decision: Literal["approve", "deny"],
    meant: str | None,
    approval_id: str | None,
    comment: str | None,
    token: str | None,
    *,
    always: bool = False,
    stop: bool | None = None,
) -> int:
    from switchtower import config
    from switchtower.cli import questions
    from switchtower.client import errors
    from switchtower.client.client import Client

    if meant is not None and meant.startswith("appr_"):
        meant, approval_id = None, meant
    async with await Client.connect(config.load()) as client:
        waiting = [
            found
            for session_id in await _candidates(client, meant)
            for found in await _open_questions(client, session_id, token)
            if approval_id in (None, found.approval.approvalId)
        ]
        match waiting:
            case [only] if always and questions.always(only.approval) is None:
                raise errors.ClientError(
                    f"this is asked about every time: {only.approval.summary}", hint="approve it without `--always`"
                )
            case [only]:
                if decision == "approve" and approval_id is None and not await _confirm(only):
                    console.say("Not approved.")
                    return console.Exit.FAILED
                await _submit(client, only, decision, comment, always=always, stop=stop)
                return console.Exit.OK
            case []:
                raise errors.ClientError("no such approval is waiting for a decision", hint="see `tower status`")
            case _:
                names = ", ".join(f"{found.approval.approvalId} ({found.approval.summary})" for found in waiting)
                raise errors.ClientError(
                    f"{len(waiting)} questions wait: {names}", hint=f"name one: `tower {decision} APPROVAL_ID`; see `tower inbox`"
                )


async def _confirm(waiting: Waiting) -> bool:
    """Shows what would be approved, because it may have changed since it was last looked at; at a terminal, asks as well."""
    from switchtower.cli import keyboard, questions

    for text, colour in questions.lines(waiting.approval):
        console.say(text, colour)
    if not keyboard.is_possible():
        return True
    keyboard.forget_typed()
    answer = await keyboard.line("Approve this? [y/N] ")
    return answer is not None and answer.strip().lower() in ("y", "yes")


async def _submit(
    client: "Client",
    waiting: Waiting,
    decision: Literal["approve", "deny"],
    comment: str | None,
    *,
    always: bool,
    stop: bool | None,
) -> None:
    from switchtower.cli import questions

    session_id, run_id, approval = waiting
    scope: messages.ApprovalScope = "session" if always else "once"
    await client.decide(session_id, run_id, approval.approvalId, decision, comment=comment, scope=scope, stop=stop)
    console.say(f"{'approved' if decision == 'approve' else 'denied'}: {approval.summary} ({session_id})")
    if always:
        console.say(f"allowed for the rest of this session: {questions.always(approval)}")


async def _candidates(client: "Client", meant: str | None) -> list[str]:
    from switchtower.cli import lookup

    if meant is not None:
        return [await lookup.session_id(client, meant)]
    listed = await client.list_sessions(lookup.MOST_LISTED)
    return [session.sessionId for session in listed if session.state == "awaiting_approval"]


async def _open_questions(client: "Client", session_id: str, token: str | None) -> list[Waiting]:
    from switchtower.cli import lookup

    if token is not None:
        client.remember(session_id, token)
    elif client.offers("inbox"):
        pending = await client.approvals(lookup.MOST_LISTED)
        return [Waiting(session_id, one.runId, one.approval) for one in pending if one.sessionId == session_id]
    snapshot = await client.session(session_id).snapshot()
    if snapshot.pendingApproval is None or snapshot.activeRunId is None:
        return []
    return [Waiting(session_id, snapshot.activeRunId, snapshot.pendingApproval)]
