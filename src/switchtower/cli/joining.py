"""A run in a session that is there already: it begins at once, waits for its turn, or is refused. Starts no second run."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

from switchtower.cli import console, lookup, signals, through
from switchtower.client import errors
from switchtower.client.client import Client
from switchtower.client.session import Session
from switchtower.protocols.push import messages


class Begun(NamedTuple):
    run_id: str
    after_seq: int
    """What the session said before is not of this run."""


async def find(client: Client, meant: str, token: str | None) -> str:
    """The id of a session that can take a message as a run. Raises `ClientError`."""
    session_id = await lookup.session_id(client, meant)
    if token is not None:
        client.remember(session_id, token)
    if client.offers("terminals") and (await client.get_session(session_id)).terminal is not None:
        raise errors.ClientError(
            f"{session_id} is a program in a terminal, which has no runs",
            hint=f"type into it with `tower send {session_id} …`, or see it with `tower attach {session_id}`",
        )
    return session_id


async def begin(
    client: Client,
    session_id: str,
    text: str,
    criteria: Sequence[messages.AcceptanceCriterion],
    rules: Sequence[messages.RunRule],
    *,
    queue: bool,
    within: float | None,
    interrupted: asyncio.Event,
) -> Begun:
    """With `queue`, after whatever runs there now. Raises `ClientError`, or `Interrupted` while it waits."""
    watched = client.session(session_id, on_lost=through.say_lost)
    watched.last_seen_seq = (await watched.attach()).replay.toSeq
    waited = False
    while True:
        try:
            # Not interruptible: the run may have been accepted, and only its id lets us cancel it.
            run_id = await client.send(session_id, text, acceptance=criteria, rules=rules)
            return Begun(run_id, watched.last_seen_seq)
        except errors.RequestFailed as problem:
            if problem.code != "RUN_IN_PROGRESS":
                raise
            if not queue:
                problem.hint = "wait for its end with `--queue`, or join it with `tower steer`"
                raise
        if not waited:
            console.say("another run is under way; waiting for its end", "dim")
            waited = True
        try:
            async with asyncio.timeout(within):
                await signals.unless(interrupted, _end_of_a_run(watched))
        except TimeoutError:
            raise errors.DeadlineExceeded(
                f"the session was not free within {within:g} s", hint="give it more with `--timeout`"
            ) from None


async def _end_of_a_run(watched: Session) -> None:
    """The run that was in the way ends after what is already seen; where its end cannot be read any more, it is over too."""
    async with aclosing(watched.events()) as events:
        async for event in events:
            if isinstance(event.payload, messages.RunComplete):
                return
            if isinstance(event.payload, messages.SessionSnapshot) and event.payload.activeRunId is None:
                return
