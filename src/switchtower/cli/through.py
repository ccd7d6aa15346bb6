"""One run, watched to its end from a command: shown, its approvals answered, and cancelled in the daemon when we are to stop.

Nothing is left running: whoever interrupts this, or lets its time run out, cancels the run in the daemon too.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from switchtower.cli import console, output
from switchtower.cli.follow import Decide, Follower
from switchtower.client import errors
from switchtower.client.client import Client
from switchtower.client.frames import Event
from switchtower.client.session import Session
from switchtower.protocols.push import messages

CANCEL_PATIENCE = 15.0
"""Seconds that a cancelled run may take to end."""


class Ended(NamedTuple):
    complete: messages.RunComplete
    timed_out: bool


async def see_through(
    client: Client,
    session: Session,
    run_id: str,
    *,
    show: Callable[[Event], None],
    decide: Decide,
    interrupted: asyncio.Event,
    within: float | None = None,
) -> Ended:
    session_id = session.session_id
    following = asyncio.create_task(Follower(client, session, run_id, show=show, decide=decide).until_complete())
    try:
        reason = await _first_reason_to_stop(following, interrupted, within)
        if reason is not None:
            console.say(f"cancelling: {reason}", "yellow")
            await _cancel(client, session_id, run_id, reason)
            await asyncio.wait({following}, timeout=CANCEL_PATIENCE)
            if not following.done():
                raise errors.ClientError(
                    f"run {run_id} was asked to stop but has not ended", hint=f"see `tower attach {session_id}`"
                )
        complete = following.result()
    except output.NobodyReads:
        await _cancel(client, session_id, run_id, "nobody reads the output")
        raise
    finally:
        following.cancel()
    return Ended(complete, timed_out=reason == "timeout" and complete.outcome == "cancelled")


async def _first_reason_to_stop(
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


async def _cancel(client: Client, session_id: str, run_id: str, reason: str) -> None:
    try:
        await client.cancel(session_id, run_id=run_id, reason=reason)
    except errors.RequestFailed as problem:
        if problem.code != "NO_ACTIVE_RUN":  # it ended in the meantime, which its last event says better
            raise


def say_lost() -> None:
    console.say("connection lost; waiting for the daemon", "yellow")
