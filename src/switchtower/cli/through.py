"""One run, watched to its end from a command: shown, its approvals answered, and cancelled in the daemon when we are to stop.

Nothing is left running: whoever interrupts this, or lets its time run out, cancels the run in the daemon too.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from switchtower.cli import console, output
from switchtower.cli.follow import ApprovalDecider, RunFollower
from switchtower.client import errors
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.client.session import SessionSubscription
from switchtower.protocols.push import messages

CANCEL_TIMEOUT = 15.0
"""Seconds that a cancelled run may take to end."""


class RunWatchResult(NamedTuple):
    complete: messages.RunComplete
    timed_out: bool


async def watch_run(
    client: DaemonClient,
    session: SessionSubscription,
    run_id: str,
    *,
    show: Callable[[PushEvent], None],
    decide: ApprovalDecider,
    interrupted: asyncio.Event,
    timeout: float | None = None,
) -> RunWatchResult:
    session_id = session.session_id
    following = asyncio.create_task(RunFollower(client, session, run_id, show=show, decide=decide).follow_to_end())
    try:
        reason = await _wait_for_stop_reason(following, interrupted, timeout)
        if reason is not None:
            console.print_line(f"cancelling: {reason}", "yellow")
            await _cancel_run(client, session_id, run_id, reason)
            await asyncio.wait({following}, timeout=CANCEL_TIMEOUT)
            if not following.done():
                raise errors.ClientError(
                    f"run {run_id} was asked to stop but has not ended", hint=f"see `tower attach {session_id}`"
                )
        complete = following.result()
    except output.OutputClosed:
        await _cancel_run(client, session_id, run_id, "nobody reads the output")
        raise
    finally:
        following.cancel()
    return RunWatchResult(complete, timed_out=reason == "timeout" and complete.outcome == "cancelled")


async def _wait_for_stop_reason(
    following: asyncio.Task[messages.RunComplete], interrupted: asyncio.Event, seconds: float | None
) -> str | None:
    """None when the run, or watching it, ended by itself."""
    asked = asyncio.create_task(interrupted.wait())
    try:
        await asyncio.wait({following, asked}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
    if following.done():
        return None
    return "user_cancelled" if interrupted.is_set() else "timeout"


async def _cancel_run(client: DaemonClient, session_id: str, run_id: str, reason: str) -> None:
    try:
        await client.cancel_run(session_id, run_id=run_id, reason=reason)
    except errors.RequestFailed as problem:
        if problem.code != "NO_ACTIVE_RUN":  # it ended in the meantime, which its last event says better
            raise


def print_connection_lost() -> None:
    console.print_line("connection lost; waiting for the daemon", "yellow")
