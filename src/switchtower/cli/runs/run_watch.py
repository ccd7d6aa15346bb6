"""Watches one run from a command to its end: it prints events and answers approvals with the given decider.

Nothing keeps running: an interrupt or a timeout also cancels the run in the daemon. In an existing session the run starts at
once, waits for its turn, or is refused; no second run is started. Maintenance such as an undo is a run without a model's answer,
whose result is one line on stdout.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from switchtower.cli import console, output, session_lookup, signals
from switchtower.cli.event_printer import EventPrinter, ProgressOutput
from switchtower.client import errors
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.client.subscription import SessionSubscription
from switchtower.protocols.push import messages

ApprovalDecider = Callable[[messages.ApprovalRequired], messages.ApprovalDecision | None]
"""Decides an approval; None leaves the decision to another client."""


class RunFollower:
    def __init__(
        self,
        client: DaemonClient,
        session: SessionSubscription,
        run_id: str,
        *,
        show: Callable[[PushEvent], None],
        decide: ApprovalDecider,
    ) -> None:
        self._client = client
        self._session = session
        self._run_id = run_id
        self._show = show
        self._decide = decide
        self._asked: set[str] = set()

    async def follow_to_end(self) -> messages.RunComplete:
        after_gap = False
        async with aclosing(self._session.stream_events()) as events:
            async for event in events:
                self._show(event)
                match event.payload:
                    case messages.RunComplete(self._run_id):
                        return event.payload
                    case messages.ApprovalRequired() if event.run_id == self._run_id:
                        await self._answer_approval(event.payload)
                    case messages.Warn("EVENT_GAP"):
                        after_gap = True
                    case messages.SessionSnapshot() if after_gap:
                        after_gap = False
                        await self._catch_up(event.payload)
        raise AssertionError("events end only with an exception")

    async def _catch_up(self, snapshot: messages.SessionSnapshot) -> None:
        if snapshot.activeRunId != self._run_id:
            raise errors.ClientError(
                f"run {self._run_id} ended while its events could not be read, so its outcome is not known here",
                hint=f"see `tower attach {self._session.session_id} --no-follow`",
            )
        if snapshot.pendingApproval is not None:
            await self._answer_approval(snapshot.pendingApproval)

    async def _answer_approval(self, approval: messages.ApprovalRequired) -> None:
        if approval.approvalId in self._asked:
            return
        self._asked.add(approval.approvalId)
        decision = self._decide(approval)
        if decision is None:
            return
        try:
            await self._client.decide_approval(self._session.session_id, self._run_id, approval.approvalId, decision)
        except errors.RequestFailed as problem:
            # push, Concurrency Rules: another client decided first. The events show its decision.
            if problem.code not in ("APPROVAL_EXPIRED", "APPROVAL_NOT_FOUND"):
                raise


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
    """Returns None when the run, or watching it, ended by itself."""
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
        if problem.code != "NO_ACTIVE_RUN":  # the run ended in the meantime, which its last event reports better
            raise


def print_connection_lost() -> None:
    console.print_line("connection lost; waiting for the daemon", "yellow")


class JoinedRun(NamedTuple):
    run_id: str
    after_seq: int
    """Events up to this seq do not belong to the run."""


async def find_session(client: DaemonClient, session_ref: str, token: str | None) -> str:
    """Returns the id of a session that can run a message. Raises `ClientError`."""
    session_id = await session_lookup.find_session_id(client, session_ref)
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
    """Starts the run; with `queue`, after the active run. Raises `ClientError`, or `Interrupted` while it waits."""
    watched = client.subscribe(session_id, on_lost=print_connection_lost)
    watched.last_seen_seq = (await watched.attach()).replay.toSeq
    waited = False
    while True:
        try:
            # This call is not interruptible: the daemon may have accepted the run, and only its id allows us to cancel it.
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
    """Waits for the end of the active run, which follows the events seen so far; a run whose end was pruned is over too."""
    async with aclosing(watched.stream_events()) as events:
        async for event in events:
            if isinstance(event.payload, messages.RunComplete):
                return
            if isinstance(event.payload, messages.SessionSnapshot) and event.payload.activeRunId is None:
                return


class MaintenanceRun:
    """A maintenance run. `result_phase` is the status event that carries its result."""

    def __init__(self, result_phase: str) -> None:
        self._result_phase = result_phase
        self._printer = EventPrinter(ProgressOutput(answers=False))
        self.result: str | None = None

    async def run(self, client: DaemonClient, session_id: str, start: Callable[[], Awaitable[str]]) -> int:
        """Returns the exit code. Ctrl-C cancels the run."""
        with signals.catch_interrupts() as interrupted:
            head = (await client.subscribe(session_id).attach()).replay.toSeq
            # This call is not interruptible: the daemon may have accepted the run, and only its id allows us to cancel it.
            run_id = await start()
            session = client.subscribe(session_id, last_seen_seq=head, on_lost=print_connection_lost)
            ended = await watch_run(client, session, run_id, show=self._on_event, decide=lambda _: None, interrupted=interrupted)
        if ended.complete.outcome == "success":
            self.result = self.result or ended.complete.summary
            output.write_line(console.escape_unprintable(self.result))
        return ended.complete.headless.exitCodeHint

    def _on_event(self, event: PushEvent) -> None:
        match event.payload:
            case messages.Status(_, self._result_phase, detail):
                self.result = detail or None
            case messages.RunComplete(run_id, "success"):
                self._printer.print_usage(run_id)
            case _:
                self._printer.print_event(event)
