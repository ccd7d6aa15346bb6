"""A run from a command line to its exit code: starts it, shows it, answers its approvals, and ends it when asked to stop.

Nothing is left running: whoever interrupts this, or lets its time run out, cancels the run in the daemon too.
"""

import asyncio
from collections.abc import Coroutine
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from switchtower import config
from switchtower.cli import approvals, console, output, prompt, signals, workspace
from switchtower.cli.console import Exit
from switchtower.cli.follow import Follower
from switchtower.cli.view import View
from switchtower.client import errors
from switchtower.client.client import Client
from switchtower.client.frames import Event
from switchtower.protocols.push import messages

CANCEL_PATIENCE = 15.0
"""Seconds that a cancelled run may take to end."""

Result = TypeVar("Result")


class Form(Enum):
    """What stdout carries."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


class Job(NamedTuple):
    text: str
    folder: Path
    provider: str
    model: str | None = None
    criteria: tuple[messages.AcceptanceCriterion, ...] = ()
    rules: approvals.Rules = approvals.NEVER
    timeout: float | None = None
    form: Form = Form.TEXT
    prompts: bool = False


class Interrupted(Exception):
    """Somebody asked this process to stop."""


async def execute(settings: config.Settings, job: Job) -> int:
    with signals.interruption() as interrupted:
        try:
            client = await _unless(interrupted, Client.connect(settings))
            async with client:
                started = await _unless(interrupted, client.start_session(_session(job)))
                # Not interruptible: the run may have been accepted, and only its id lets us cancel it.
                run_id = await client.send(started.sessionId, job.text, acceptance=job.criteria)
                return await _see_through(client, started.sessionId, run_id, job, interrupted)
        except Interrupted:
            return Exit.CANCELLED


def _session(job: Job) -> messages.StartSession:
    return messages.StartSession(
        mode="interactive" if job.prompts else "headless",
        provider=job.provider,
        sandboxProvider="local",
        repo=workspace.describe(job.folder),
        metadata={"source": "cli"},
        model=job.model,
    )


async def _see_through(client: Client, session_id: str, run_id: str, job: Job, interrupted: asyncio.Event) -> int:
    view = progress_view() if job.form is Form.TEXT else progress_view(answer=False)
    asking = prompt.Prompt(client, session_id, run_id)

    def show(event: Event) -> None:
        if job.form is Form.JSONL:
            output.line(event.line)
        view.show(event)
        asking.saw(event)

    def decide(approval: messages.ApprovalRequired) -> messages.ApprovalDecision | None:
        if job.rules.approve(approval.kind, approval.details):
            return "approve"
        if job.prompts:
            asking.ask(approval)
            return None
        return "deny"

    session = client.session(session_id, on_lost=say_lost)
    following = asyncio.create_task(Follower(client, session, run_id, show=show, decide=decide).until_complete())
    try:
        reason = await _first_reason_to_stop(following, interrupted, job.timeout)
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
        asking.dismiss()
    if job.form is Form.JSON:
        output.line(msgspec.json.encode({"sessionId": session_id, **msgspec.to_builtins(complete)}))
    if reason == "timeout" and complete.outcome == "cancelled":
        console.fail(f"the run did not end within {job.timeout:g} s and was cancelled", "give it more with `--timeout`")
        return Exit.FAILED
    return complete.headless.exitCodeHint


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


async def _unless(interrupted: asyncio.Event, work: Coroutine[Any, Any, Result]) -> Result:
    task = asyncio.create_task(work)
    asked = asyncio.create_task(interrupted.wait())
    try:
        await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Interrupted
        return task.result()
    finally:
        task.cancel()
        asked.cancel()


def progress_view(*, answer: bool = True) -> View:
    """The model's text to stdout, or nowhere; everything else to stderr."""
    return View(
        answer=output.answer if answer else lambda text: None,
        end_answer=output.end_answer,
        line=console.say,
    )


def say_lost() -> None:
    console.say("connection lost; waiting for the daemon", "yellow")
