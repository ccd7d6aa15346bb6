"""A run in a session that is there already: it begins at once, waits for its turn, or is refused. Starts no second run."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

from switchtower.cli import console, lookup, signals, through
from switchtower.client import errors
from switchtower.client.client import DaemonClient
from switchtower.client.session import SessionSubscription
from switchtower.protocols.push import messages


class JoinedRun(NamedTuple):
    run_id: str
    after_seq: int
    """What the session said before is not of this run."""


async def find_session(client: DaemonClient, session_ref: str, token: str | None) -> str:
    """The id of a session that can take a message as a run. Raises `ClientError`."""
    session_id = await lookup.find_session_id(client, session_ref)
    if token is not None:
        client.remember_attach_token(session_id, token)
    if client.supports("terminals") and (await client.get_session(session_id)).terminal is not None:
        raise errors.ClientError(
            f"{session_id} is a program in a terminal, which has no runs",
            hint=f"type into it with `tower send {session_id} …`, or see it with `tower attach {session_id}`",
        )
    return session_id


async def start_run(
    client: DaemonClient,
    session_id: str,
    text: str,
    criteria: Sequence[messages.AcceptanceCriterion],
    rules: Sequence[messages.RunRule],
    *,
    queue: bool,
    timeout: float | None,
    interrupted: asyncio.Event,
) -> JoinedRun:
    """With `queue`, after whatever runs there now. Raises `ClientError`, or `Interrupted` while it waits."""
    watched = client.subscribe(session_id, on_lost=through.print_connection_lost)
    watched.last_seen_seq = (await watched.attach()).replay.toSeq
    waited = False
    while True:
        try:
            # Not interruptible: the run may have been accepted, and only its id lets us cancel it.
            run_id = await client.send_message(session_id, text, acceptance=criteria, rules=rules)
            return JoinedRun(run_id, watched.last_seen_seq)
        except errors.RequestFailed as problem:
            if problem.code != "RUN_IN_PROGRESS":
                raise
            if not queue:
                problem.hint = "wait for its end with `--queue`, or join it with `tower steer`"
                raise
        if not waited:
            console.print_line("another run is under way; waiting for its end", "dim")
            waited = True
        try:
            async with asyncio.timeout(timeout):
                await signals.run_unless_interrupted(interrupted, _wait_for_run_end(watched))
        except TimeoutError:
            raise errors.DeadlineExceeded(
                f"the session was not free within {timeout:g} s", hint="give it more with `--timeout`"
            ) from None


async def _wait_for_run_end(watched: SessionSubscription) -> None:
    """The run that was in the way ends after what is already seen; where its end cannot be read any more, it is over too."""
    async with aclosing(watched.stream_events()) as events:
        async for event in events:
            if isinstance(event.payload, messages.RunComplete):
                return
            if isinstance(event.payload, messages.SessionSnapshot) and event.payload.activeRunId is None:
                return
