"""A run from a command line to its exit code: starts it in a new session or in one that is there, shows it, answers its
approvals, and leaves its reports."""

import asyncio
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import msgspec

from switchtower import config
from switchtower.cli import approvals, console, dialog_watch, joining, output, prompt, signals, through, verdict
from switchtower.cli.asker import Asker
from switchtower.cli.console import Exit
from switchtower.cli.reports import Reports
from switchtower.cli.screens import Progress
from switchtower.cli.view import View
from switchtower.client import errors, workspace
from switchtower.client.client import Client
from switchtower.client.frames import Event
from switchtower.protocols.push import extensions, messages

AUTO, DEMO = "auto", "demo"
_NOT_CI = ("", "0", "false")


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
    sandbox: messages.SandboxWish = "auto"
    trust: bool = False
    worktree: bool = False
    thinking: messages.ThinkingLevel | None = None
    limits: messages.Limits | None = None
    criteria: tuple[messages.AcceptanceCriterion, ...] = ()
    approved: approvals.Approvals = approvals.NEVER
    timeout: float | None = None
    form: Form = Form.TEXT
    prompts: bool = False
    preset: str | None = None
    attach: str | None = None
    """The session that is there already, as somebody named it."""
    token: str | None = None
    queue: bool = False
    junit: Path | None = None
    annotates: bool = False
    in_ci: bool = False

    @property
    def allows_demo(self) -> bool:
        """Whether a person at a terminal reads the answer. A machine must not take the demo's words for a model's."""
        return self.prompts and self.form is Form.TEXT and self.junit is None and not self.in_ci


def is_in_ci(environ: Mapping[str, str]) -> bool:
    """Nearly every runner sets `CI`."""
    return environ.get("CI", "").lower() not in _NOT_CI


class Standing:
    """How far it has come: a report tells of it, however it ends."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        self.run_id: str | None = None
        self.marks: dict[str, str] = {}
        """What the completion itself does not have: a cut answer, a budget that was overrun."""

    def saw(self, event: Event) -> None:
        match event.payload:
            case messages.Warn("ANSWER_CUT"):
                self.marks["stopReason"] = "length"
            case messages.Warn("BUDGET_OVERRUN", message):
                self.marks["overrun"] = message
            case messages.AssistantDone():
                self.marks.pop("stopReason", None)  # of an earlier message


async def execute(settings: config.Settings, job: Job) -> int:
    if job.approved.always:
        console.say("`--approve always`: every question of this run is approved, destructive commands too", "yellow")
    reports = Reports(job.text, verdict.unchecked(job.criteria), file=job.junit, annotates=job.annotates)
    reports.begin()
    standing = Standing()

    def end_reports(outcome: str, why: str) -> None:
        try:
            reports.end_without(outcome, why, session_id=standing.session_id, run_id=standing.run_id)
        except errors.ClientError as problem:
            console.fail(str(problem))

    with signals.interruption(lambda: end_reports("cancelled", "left before the run had ended")) as interrupted:
        try:
            client = await signals.unless(interrupted, Client.connect(settings))
            async with client:
                after_seq = await _begin(client, job, standing, interrupted)
                ended = await _see_through(client, standing, after_seq, job, interrupted)
        except signals.Interrupted:
            end_reports("cancelled", "cancelled before the run began")
            return Exit.CANCELLED
        except errors.RequestFailed as refusal:
            end_reports("failed", str(refusal))
            _print_error(job.form, refusal)
            raise
        except errors.ClientError as problem:
            end_reports("error", str(problem))
            _print_error(job.form, problem)
            raise
        except output.NobodyReads:
            end_reports("cancelled", "nobody reads the output")
            raise
        except BaseException:
            end_reports("error", "ended with an error of its own")
            raise
    return _finish(reports, standing, job, ended)


def _print_error(form: Form, problem: errors.ClientError) -> None:
    """Why there is no run, as an object where stdout carries JSON. A remedy of the daemon's is part of its message."""
    if form is Form.TEXT:
        return
    message, _, hint = problem.message.partition("; hint: ")
    code = problem.code if isinstance(problem, errors.RequestFailed) else "CLIENT_ERROR"
    output.line(msgspec.json.encode({"error": {"code": code, "message": message, "hint": hint or problem.hint}}))


def _finish(reports: Reports, standing: Standing, job: Job, ended: through.Ended) -> int:
    complete = ended.complete
    code: int = Exit.TIMED_OUT if ended.timed_out else complete.headless.exitCodeHint
    assert standing.session_id is not None, "a run that ended had a session"
    found = verdict.of(complete, job.criteria, session_id=standing.session_id, seconds=reports.seconds, timed_out=ended.timed_out)
    try:
        if job.form is Form.JSON:
            output.line(
                msgspec.json.encode({"sessionId": standing.session_id, **msgspec.to_builtins(complete), **standing.marks})
            )
    finally:
        try:
            reports.end(found)
        except errors.ClientError as problem:
            console.fail(str(problem))
            code = code or Exit.FAILED
    if ended.timed_out:
        console.fail(f"the run did not end within {job.timeout:g} s and was cancelled", "give it more with `--timeout`")
    return code


async def _begin(client: Client, job: Job, standing: Standing, interrupted: asyncio.Event) -> int:
    """The seq after which the run's events come."""
    if job.attach is not None:
        session_id = await signals.unless(interrupted, joining.find(client, job.attach, job.token))
        begun = await joining.begin(
            client,
            session_id,
            job.text,
            job.criteria,
            job.approved.rules,
            queue=job.queue,
            within=job.timeout,
            interrupted=interrupted,
        )
        standing.session_id, standing.run_id = session_id, begun.run_id
        return begun.after_seq
    started = await signals.unless(interrupted, client.start_session(_session(job)))
    standing.session_id = started.sessionId
    # Not interruptible: the run may have been accepted, and only its id lets us cancel it.
    standing.run_id = await client.send(started.sessionId, job.text, acceptance=job.criteria, rules=job.approved.rules)
    return 0


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
        trust=job.trust,
        allowDemo=job.allows_demo,
    )


async def _see_through(client: Client, standing: Standing, after_seq: int, job: Job, interrupted: asyncio.Event) -> through.Ended:
    session_id, run_id = standing.session_id, standing.run_id
    assert session_id is not None and run_id is not None, "a run that began has a session"
    view = View(Progress(answers=job.form is Form.TEXT))
    asker = Asker()
    asking = prompt.Prompt(asker, client, session_id, run_id)
    session = client.session(session_id, last_seen_seq=after_seq, on_lost=through.say_lost)
    at_terminal = dialog_watch.AtTerminal(asker, client, session_id)
    watch = dialog_watch.DialogWatch(session, at_terminal if job.prompts else dialog_watch.ByOthers(session_id))
    about = await client.get_session(session_id) if client.offers("session_info") else None

    def show(event: Event) -> None:
        if job.form is Form.JSONL:
            output.line(event.line)
        view.show(event)
        standing.saw(event)
        asking.saw(event)
        watch.saw(event)
        if about is not None and isinstance(event.payload, messages.SessionStarted):
            _introduce(about, chosen_by_us=job.provider == AUTO and job.allows_demo)

    def decide(approval: messages.ApprovalRequired) -> messages.ApprovalDecision | None:
        if job.approved.always:
            return "approve"
        if job.prompts:
            asking.ask(approval)
            return None
        return "deny"

    if about is not None and job.attach is not None:
        _introduce(about, chosen_by_us=False)
    try:
        return await through.see_through(
            client, session, run_id, show=show, decide=decide, interrupted=interrupted, within=job.timeout
        )
    finally:
        view.end()
        await asker.close()


def _introduce(about: extensions.SessionInfo, *, chosen_by_us: bool) -> None:
    """Who answers, and what it may do."""
    model = f"{about.provider} {about.model}" if about.model else about.provider
    preset = f"preset {about.preset}, " if about.preset else ""
    console.say(f"{preset}model {model}, policy {about.policy}, sandbox {about.sandbox}", "dim")
    if about.worktreeOf is not None:
        console.say(f"worktree {about.rootPath} (branch {about.branch})", "dim")
    if chosen_by_us and about.provider == DEMO:
        console.say("no model is configured, so the demo model answers; hint: see `tower models`", "yellow")
