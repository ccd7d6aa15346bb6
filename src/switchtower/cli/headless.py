"""A run from a command line to its exit code: starts it in a new session, shows it, and answers its approvals."""

import asyncio
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import msgspec

from switchtower import config
from switchtower.cli import approvals, console, dialog_watch, output, prompt, signals, through, workspace
from switchtower.cli.asker import Asker
from switchtower.cli.console import Exit
from switchtower.cli.screens import Progress
from switchtower.cli.view import View
from switchtower.client.client import Client
from switchtower.client.frames import Event
from switchtower.protocols.push import extensions, messages

AUTO, DEMO = "auto", "demo"


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
    policy: messages.PolicyProfile | None = None
    sandbox: messages.SandboxWish = "local"
    worktree: bool = False
    thinking: messages.ThinkingLevel | None = None
    limits: messages.Limits | None = None
    criteria: tuple[messages.AcceptanceCriterion, ...] = ()
    rules: approvals.Rules = approvals.NEVER
    timeout: float | None = None
    form: Form = Form.TEXT
    prompts: bool = False
    preset: str | None = None


async def execute(settings: config.Settings, job: Job) -> int:
    with signals.interruption() as interrupted:
        try:
            client = await signals.unless(interrupted, Client.connect(settings))
            async with client:
                started = await signals.unless(interrupted, client.start_session(_session(job)))
                # Not interruptible: the run may have been accepted, and only its id lets us cancel it.
                run_id = await client.send(started.sessionId, job.text, acceptance=job.criteria)
                return await _see_through(client, started.sessionId, run_id, job, interrupted)
        except signals.Interrupted:
            return Exit.CANCELLED


def _session(job: Job) -> messages.StartSession:
    return messages.StartSession(
        mode="interactive" if job.prompts else "headless",
        provider=job.provider,
        sandboxProvider=job.sandbox,
        repo=workspace.describe(job.folder),
        metadata={"source": "cli"},
        model=job.model,
        policy=job.policy,
        thinking=job.thinking,
        limits=job.limits,
        worktree=job.worktree,
        preset=job.preset,
    )


async def _see_through(client: Client, session_id: str, run_id: str, job: Job, interrupted: asyncio.Event) -> int:
    view = View(Progress(answers=job.form is Form.TEXT))
    asker = Asker()
    asking = prompt.Prompt(asker, client, session_id, run_id)
    session = client.session(session_id, on_lost=through.say_lost)
    at_terminal = dialog_watch.AtTerminal(asker, client, session_id)
    watch = dialog_watch.DialogWatch(session, at_terminal if job.prompts else dialog_watch.ByOthers(session_id))
    about = await client.get_session(session_id) if client.offers("session_info") else None

    def show(event: Event) -> None:
        if job.form is Form.JSONL:
            output.line(event.line)
        view.show(event)
        asking.saw(event)
        watch.saw(event)
        if about is not None and isinstance(event.payload, messages.SessionStarted):
            _introduce(about, chosen_by_us=job.provider == AUTO)

    def decide(approval: messages.ApprovalRequired) -> messages.ApprovalDecision | None:
        if job.rules.approve(approval.kind, approval.details):
            return "approve"
        if job.prompts:
            asking.ask(approval)
            return None
        return "deny"

    try:
        ended = await through.see_through(
            client, session, run_id, show=show, decide=decide, interrupted=interrupted, within=job.timeout
        )
    finally:
        await asker.close()
    if job.form is Form.JSON:
        output.line(msgspec.json.encode({"sessionId": session_id, **msgspec.to_builtins(ended.complete)}))
    if ended.timed_out:
        console.fail(f"the run did not end within {job.timeout:g} s and was cancelled", "give it more with `--timeout`")
        return Exit.FAILED
    return ended.complete.headless.exitCodeHint


def _introduce(about: extensions.SessionInfo, *, chosen_by_us: bool) -> None:
    """Who answers, and what it may do."""
    model = f"{about.provider} {about.model}" if about.model else about.provider
    preset = f"preset {about.preset}, " if about.preset else ""
    console.say(f"{preset}model {model}, policy {about.policy}, sandbox {about.sandbox}", "dim")
    if about.worktreeOf is not None:
        console.say(f"worktree {about.rootPath} (branch {about.branch})", "dim")
    if chosen_by_us and about.provider == DEMO:
        console.say("no key and no model server was found, so the demo model answers; hint: see `tower models`", "yellow")
