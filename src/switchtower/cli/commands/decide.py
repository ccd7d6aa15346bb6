"""`tower approve` and `tower deny`: the decision that a waiting run needs."""

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from switchtower.cli import arguments, console

if TYPE_CHECKING:
    from switchtower.client.client import DaemonClient
    from switchtower.protocols.push import messages


class SessionApproval(NamedTuple):
    session_id: str
    run_id: str
    approval: "messages.ApprovalRequired"


@click.command()
@click.argument("session", required=False)
@click.argument("approval_id", required=False)
@click.option("--always", is_flag=True, help="And what is like it, for the rest of this session; prints the rule.")
@click.option("--comment", metavar="TEXT", callback=arguments.validate_sendable, help="Kept with the decision.")
@arguments.token_option
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
    callback=arguments.validate_sendable,
    help="Kept with the decision, and sent to an agent's model, which then continues without the action.",
)
@click.option("--stop", is_flag=True, help="End the run, or the program in the terminal, as well.")
@arguments.token_option
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
    session_ref: str | None,
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
    from switchtower.client.client import DaemonClient

    if session_ref is not None and session_ref.startswith("appr_"):
        session_ref, approval_id = None, session_ref
    async with await DaemonClient.connect(config.load()) as client:
        waiting = [
            found
            for session_id in await _list_candidates(client, session_ref)
            for found in await _list_open_approvals(client, session_id, token)
            if approval_id in (None, found.approval.approvalId)
        ]
        match waiting:
            case [only] if always and questions.format_always_rule(only.approval) is None:
                raise errors.ClientError(
                    f"this is asked about every time: {only.approval.summary}", hint="approve it without `--always`"
                )
            case [only]:
                if decision == "approve" and approval_id is None and not await _confirm(only):
                    console.print_line("Not approved.")
                    return console.ExitStatus.FAILED
                await _submit_decision(client, only, decision, comment, always=always, stop=stop)
                return console.ExitStatus.OK
            case []:
                raise errors.ClientError("no such approval is waiting for a decision", hint="see `tower status`")
            case _:
                names = ", ".join(f"{found.approval.approvalId} ({found.approval.summary})" for found in waiting)
                raise errors.ClientError(
                    f"{len(waiting)} questions wait: {names}", hint=f"name one: `tower {decision} APPROVAL_ID`; see `tower inbox`"
                )


async def _confirm(waiting: SessionApproval) -> bool:
    """Shows what would be approved, because it may have changed since it was last looked at; at a terminal, asks as well."""
    from switchtower.cli import keyboard, questions

    for text, colour in questions.format_approval(waiting.approval):
        console.print_line(text, colour)
    if not keyboard.is_interactive():
        return True
    keyboard.discard_typeahead()
    answer = await keyboard.read_line("Approve this? [y/N] ")
    return answer is not None and answer.strip().lower() in ("y", "yes")


async def _submit_decision(
    client: "DaemonClient",
    waiting: SessionApproval,
    decision: Literal["approve", "deny"],
    comment: str | None,
    *,
    always: bool,
    stop: bool | None,
) -> None:
    from switchtower.cli import questions

    session_id, run_id, approval = waiting
    scope: messages.ApprovalScope = "session" if always else "once"
    await client.decide_approval(session_id, run_id, approval.approvalId, decision, comment=comment, scope=scope, stop=stop)
    console.print_line(f"{'approved' if decision == 'approve' else 'denied'}: {approval.summary} ({session_id})")
    if always:
        console.print_line(f"allowed for the rest of this session: {questions.format_always_rule(approval)}")


async def _list_candidates(client: "DaemonClient", session_ref: str | None) -> list[str]:
    from switchtower.cli import lookup

    if session_ref is not None:
        return [await lookup.find_session_id(client, session_ref)]
    listed = await client.list_sessions(lookup.MAX_LISTED)
    return [session.sessionId for session in listed if session.state == "awaiting_approval"]


async def _list_open_approvals(client: "DaemonClient", session_id: str, token: str | None) -> list[SessionApproval]:
    from switchtower.cli import lookup

    if token is not None:
        client.remember_attach_token(session_id, token)
    elif client.supports("inbox"):
        pending = await client.list_approvals(lookup.MAX_LISTED)
        return [SessionApproval(session_id, one.runId, one.approval) for one in pending if one.sessionId == session_id]
    snapshot = await client.subscribe(session_id).fetch_snapshot()
    if snapshot.pendingApproval is None or snapshot.activeRunId is None:
        return []
    return [SessionApproval(session_id, snapshot.activeRunId, snapshot.pendingApproval)]
