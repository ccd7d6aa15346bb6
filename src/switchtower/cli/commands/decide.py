"""`tower approve` and `tower deny`: the decision that a waiting run needs."""

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from switchtower.cli import console

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
@click.option("--comment", metavar="TEXT", help="Kept with the decision.")
@click.option("--token", metavar="TOKEN", help="The session's attach token, where the daemon asks for it.")
def approve(session: str | None, approval_id: str | None, comment: str | None, token: str | None) -> int:
    """Let a waiting action happen.

    SESSION is an id, a unique beginning or end of one, or `last`; without it, the only session that waits. With APPROVAL_ID,
    nothing is approved unless that very question is still open.

    \b
    Example:
      tower approve last
    """
    return asyncio.run(_decide("approve", session, approval_id, comment, token))


@click.command()
@click.argument("session", required=False)
@click.argument("approval_id", required=False)
@click.option("--comment", metavar="TEXT", help="Told to the model, which then goes on without the action.")
@click.option("--token", metavar="TOKEN", help="The session's attach token, where the daemon asks for it.")
def deny(session: str | None, approval_id: str | None, comment: str | None, token: str | None) -> int:
    """Refuse a waiting action. Without a comment the run ends; a headless run ends in any case.

    SESSION is an id, a unique beginning or end of one, or `last`; without it, the only session that waits. With APPROVAL_ID,
    nothing is denied unless that very question is still open.

    \b
    Example:
      tower deny last --comment "write it to docs/ instead"
    """
    return asyncio.run(_decide("deny", session, approval_id, comment, token))


async def _decide(
    decision: Literal["approve", "deny"], meant: str | None, approval_id: str | None, comment: str | None, token: str | None
) -> int:
    from switchtower import config
    from switchtower.client import errors
    from switchtower.client.client import Client

    if meant is not None and meant.startswith("appr_"):
        meant, approval_id = None, meant
    async with await Client.connect(config.load()) as client:
        waiting = [
            found
            for session_id in await _candidates(client, meant)
            if (found := await _open_question(client, session_id, token)) and approval_id in (None, found.approval.approvalId)
        ]
        match waiting:
            case [only]:
                await client.decide(only.session_id, only.run_id, only.approval.approvalId, decision, comment=comment)
                console.say(f"{'approved' if decision == 'approve' else 'denied'}: {only.approval.summary} ({only.session_id})")
                return console.Exit.OK
            case []:
                raise errors.ClientError("no such approval is waiting for a decision", hint="see `tower status`")
            case _:
                names = ", ".join(f"{found.session_id} ({found.approval.summary})" for found in waiting)
                raise errors.ClientError(f"{len(waiting)} sessions wait: {names}", hint=f"name one: `tower {decision} SESSION`")


async def _candidates(client: "Client", meant: str | None) -> list[str]:
    from switchtower.cli import lookup

    if meant is not None:
        return [await lookup.session_id(client, meant)]
    listed = await client.list_sessions(lookup.MOST_LISTED)
    return [session.sessionId for session in listed if session.state == "awaiting_approval"]


async def _open_question(client: "Client", session_id: str, token: str | None) -> Waiting | None:
    if token is not None:
        client.remember(session_id, token)
    snapshot = await client.session(session_id).snapshot()
    if snapshot.pendingApproval is None or snapshot.activeRunId is None:
        return None
    return Waiting(session_id, snapshot.activeRunId, snapshot.pendingApproval)
