"""`tower approve` and `tower deny` decide an approval; `tower inbox` lists the pending approvals of all sessions."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from switchtower.cli import arguments, console, output
from switchtower.presentation import formats

if TYPE_CHECKING:
    from switchtower.client.client import DaemonClient
    from switchtower.client.node_names import NodeNames
    from switchtower.protocols.push import listing_messages, messages


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
    from switchtower.client import errors
    from switchtower.client.client import DaemonClient
    from switchtower.presentation import approval_text

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
            case [only] if always and approval_text.format_always_rule(only.approval) is None:
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
    """Shows what would be approved, because it may have changed since the user last saw it; at a terminal it also asks."""
    from switchtower.cli.terminal import user_input
    from switchtower.presentation import approval_text

    for text, colour in approval_text.format_approval(waiting.approval):
        console.print_line(text, colour)
    if not user_input.is_interactive():
        return True
    user_input.discard_typeahead()
    answer = await user_input.read_line("Approve this? [y/N] ")
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
    from switchtower.presentation import approval_text

    session_id, run_id, approval = waiting
    scope: messages.ApprovalScope = "session" if always else "once"
    await client.decide_approval(session_id, run_id, approval.approvalId, decision, comment=comment, scope=scope, stop=stop)
    console.print_line(f"{'approved' if decision == 'approve' else 'denied'}: {approval.summary} ({session_id})")
    if always:
        console.print_line(f"allowed for the rest of this session: {approval_text.format_always_rule(approval)}")


async def _list_candidates(client: "DaemonClient", session_ref: str | None) -> list[str]:
    from switchtower.cli import session_lookup

    if session_ref is not None:
        return [await session_lookup.find_session_id(client, session_ref)]
    listed = await client.list_sessions(session_lookup.MAX_LISTED)
    return [session.sessionId for session in listed if session.state == "awaiting_approval"]


async def _list_open_approvals(client: "DaemonClient", session_id: str, token: str | None) -> list[SessionApproval]:
    from switchtower.cli import session_lookup

    if token is not None:
        client.remember_attach_token(session_id, token)
    elif client.supports("inbox"):
        pending = await client.list_approvals(session_lookup.MAX_LISTED)
        return [SessionApproval(session_id, one.runId, one.approval) for one in pending if one.sessionId == session_id]
    snapshot = await client.subscribe(session_id).fetch_snapshot()
    if snapshot.pendingApproval is None or snapshot.activeRunId is None:
        return []
    return [SessionApproval(session_id, snapshot.activeRunId, snapshot.pendingApproval)]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
@click.option("--watch", is_flag=True, help="Continue, and print each one as it comes. Ctrl-C ends it.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when something waits; for scripts.")
def inbox(as_json: bool, watch: bool, exit_code: bool) -> int:
    """List what waits for a decision, of all sessions and hosts, with exactly what will run.

    \b
    Exit codes:
      0, or with --exit-code 1 when something waits

    \b
    Example:
      tower inbox
      tower inbox --json | jq -r '.[].approval.approvalId'
      tower inbox --watch
    """
    try:
        return asyncio.run(_watch(as_json=as_json) if watch else _list_pending(as_json=as_json, exit_code=exit_code))
    except KeyboardInterrupt:
        return console.ExitStatus.OK


async def _list_pending(*, as_json: bool, exit_code: bool) -> int:
    import msgspec

    from switchtower import config
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(config.load()) as client:
        waiting = await client.list_approvals()
        known = await _fetch_node_names(client, waiting)
    if as_json:
        output.write_line(msgspec.json.encode(waiting))
    else:
        for one in waiting:
            _print_approval(one, known)
        if not waiting:
            console.print_line("nothing waits for a decision")
    return console.ExitStatus.FAILED if waiting and exit_code else console.ExitStatus.OK


_POLL_INTERVAL = 1.0
"""Seconds between two polls: push has no subscription to all sessions."""


async def _watch(*, as_json: bool) -> int:
    import msgspec

    from switchtower import config
    from switchtower.client.client import DaemonClient

    known: set[str] = set()
    async with await DaemonClient.connect(config.load()) as client:
        while True:
            waiting = await client.list_approvals()
            known_homes = await _fetch_node_names(client, waiting)
            for one in waiting:
                if one.approval.approvalId not in known:
                    if as_json:
                        output.write_line(msgspec.json.encode(one))
                    else:
                        _print_approval(one, known_homes)
            known = {one.approval.approvalId for one in waiting}
            await asyncio.sleep(_POLL_INTERVAL)


async def _fetch_node_names(client: "DaemonClient", waiting: "Sequence[listing_messages.PendingApproval]") -> "NodeNames":
    """Fetches the names only if a session has an owner, which none has on a single node."""
    from switchtower.client import node_names

    return await node_names.fetch_node_names(client) if any(one.home for one in waiting) else node_names.NO_NODES


def _print_approval(one: "listing_messages.PendingApproval", node_names: "NodeNames") -> None:
    from switchtower.presentation import approval_text

    place = one.host or node_names.format_owner(one.home)
    where = f" on {place}" if place else ""
    left = formats.format_age(one.approval.expiresAt / 1_000 - time.time())
    title = f" {one.sessionTitle}" if one.sessionTitle else ""
    output.write_line(console.escape_unprintable(f"{one.approval.approvalId}  {one.sessionId}{where}{title}"))
    for text, _ in approval_text.format_approval(one.approval):
        output.write_line(console.escape_unprintable(text))
    approve = (
        f"`tower approve {one.approval.approvalId}`"
        if "approve" in one.approval.options
        else f"decide at the terminal: `tower attach {one.sessionId}`,"
    )
    output.write_line(f"  expires in {left}; hint: {approve} or `tower deny {one.approval.approvalId}`")
