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
from switchtower.cli.asker import QuestionQueue
from switchtower.cli.console import ExitStatus
from switchtower.cli.reports import CiReports
from switchtower.cli.screens import ProgressOutput
from switchtower.cli.view import EventPrinter
from switchtower.client import errors, workspace
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.protocols.push import extensions, messages

AUTO, DEMO = "auto", "demo"
_FALSE_VALUES = ("", "0", "false")


class OutputFormat(Enum):
    """What stdout carries."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


class HeadlessRun(NamedTuple):
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
    approved: approvals.ApprovalRules = approvals.NO_RULES
    timeout: float | None = None
    form: OutputFormat = OutputFormat.TEXT
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
    def can_use_demo(self) -> bool:
        """Whether a person at a terminal reads the answer. A machine must not take the demo's words for a model's."""
        return self.prompts and self.form is OutputFormat.TEXT and self.junit is None and not self.in_ci


def is_in_ci(environ: Mapping[str, str]) -> bool:
    """Nearly every runner sets `CI`."""
    return environ.get("CI", "").lower() not in _FALSE_VALUES


class RunReference:
    """How far it has come: a report tells of it, however it ends."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        self.run_id: str | None = None
        self.marks: dict[str, str] = {}
        """What the completion itself does not have: a cut answer, a budget that was overrun."""

    def on_event(self, event: PushEvent) -> None:
        match event.payload:
            case messages.Warn("ANSWER_CUT"):
                self.marks["stopReason"] = "length"
            case messages.Warn("BUDGET_OVERRUN", message):
                self.marks["overrun"] = message
            case messages.AssistantDone():
                self.marks.pop("stopReason", None)  # of an earlier message


async def run_headless(settings: config.Settings, job: HeadlessRun) -> int:
    if job.approved.always:
        console.print_line("`--approve always`: every question of this run is approved, destructive commands too", "yellow")
    reports = CiReports(job.text, verdict.list_unchecked(job.criteria), file=job.junit, annotates=job.annotates)
    reports.begin()
    standing = RunReference()

    def end_reports(outcome: str, why: str) -> None:
        try:
            reports.end_unfinished(outcome, why, session_id=standing.session_id, run_id=standing.run_id)
        except errors.ClientError as problem:
            console.print_error(str(problem))

    with signals.catch_interrupts(lambda: end_reports("cancelled", "left before the run had ended")) as interrupted:
        try:
            client = await signals.run_unless_interrupted(interrupted, DaemonClient.connect(settings))
            async with client:
                after_seq = await _start_session_run(client, job, standing, interrupted)
                ended = await _watch_run(client, standing, after_seq, job, interrupted)
        except signals.Interrupted:
            end_reports("cancelled", "cancelled before the run began")
            return ExitStatus.CANCELLED
        except errors.RequestFailed as refusal:
            end_reports("failed", str(refusal))
            _print_error(job.form, refusal)
            raise
        except errors.ClientError as problem:
            end_reports("error", str(problem))
            _print_error(job.form, problem)
            raise
        except output.OutputClosed:
            end_reports("cancelled", "nobody reads the output")
            raise
        except BaseException:
            end_reports("error", "ended with an error of its own")
            raise
    return _finish_reports(reports, standing, job, ended)


def _print_error(form: OutputFormat, problem: errors.ClientError) -> None:
    """Why there is no run, as an object where stdout carries JSON. A remedy of the daemon's is part of its message."""
    if form is OutputFormat.TEXT:
        return
    message, _, hint = problem.message.partition("; hint: ")
    code = problem.code if isinstance(problem, errors.RequestFailed) else "CLIENT_ERROR"
    output.write_line(msgspec.json.encode({"error": {"code": code, "message": message, "hint": hint or problem.hint}}))


def _finish_reports(reports: CiReports, standing: RunReference, job: HeadlessRun, ended: through.RunWatchResult) -> int:
    complete = ended.complete
    code: int = ExitStatus.TIMED_OUT if ended.timed_out else complete.headless.exitCodeHint
    assert standing.session_id is not None, "a run that ended had a session"
    found = verdict.make_verdict(
        complete, job.criteria, session_id=standing.session_id, seconds=reports.elapsed_seconds, timed_out=ended.timed_out
    )
    try:
        if job.form is OutputFormat.JSON:
            output.write_line(
                msgspec.json.encode({"sessionId": standing.session_id, **msgspec.to_builtins(complete), **standing.marks})
            )
    finally:
        try:
            reports.end(found)
        except errors.ClientError as problem:
            console.print_error(str(problem))
            code = code or ExitStatus.FAILED
    if ended.timed_out:
        console.print_error(f"the run did not end within {job.timeout:g} s and was cancelled", "give it more with `--timeout`")
    return code


async def _start_session_run(client: DaemonClient, job: HeadlessRun, standing: RunReference, interrupted: asyncio.Event) -> int:
    """The seq after which the run's events come."""
    if job.attach is not None:
        session_id = await signals.run_unless_interrupted(interrupted, joining.find_session(client, job.attach, job.token))
        begun = await joining.start_run(
            client,
            session_id,
            job.text,
            job.criteria,
            job.approved.rules,
            queue=job.queue,
            timeout=job.timeout,
            interrupted=interrupted,
        )
        standing.session_id, standing.run_id = session_id, begun.run_id
        return begun.after_seq
    started = await signals.run_unless_interrupted(interrupted, client.start_session(_make_session_request(job)))
    standing.session_id = started.sessionId
    # Not interruptible: the run may have been accepted, and only its id lets us cancel it.
    standing.run_id = await client.send_message(started.sessionId, job.text, acceptance=job.criteria, rules=job.approved.rules)
    return 0


def _make_session_request(job: HeadlessRun) -> messages.StartSession:
    return messages.StartSession(
        mode="interactive" if job.prompts else "headless",
        provider=job.provider,
        sandboxProvider=job.sandbox,
        repo=workspace.describe_repo(job.folder),
        metadata={"source": "cli"},
        model=job.model,
        policy=job.policy,
        thinking=job.thinking,
        limits=job.limits,
        worktree=job.worktree,
        preset=job.preset,
        trust=job.trust,
        allowDemo=job.can_use_demo,
    )


async def _watch_run(
    client: DaemonClient, standing: RunReference, after_seq: int, job: HeadlessRun, interrupted: asyncio.Event
) -> through.RunWatchResult:
    session_id, run_id = standing.session_id, standing.run_id
    assert session_id is not None and run_id is not None, "a run that began has a session"
    view = EventPrinter(ProgressOutput(answers=job.form is OutputFormat.TEXT))
    asker = QuestionQueue()
    asking = prompt.ApprovalPrompt(asker, client, session_id, run_id)
    session = client.subscribe(session_id, last_seen_seq=after_seq, on_lost=through.print_connection_lost)
    at_terminal = dialog_watch.TerminalDialogPresenter(asker, client, session_id)
    watch = dialog_watch.DialogWatch(session, at_terminal if job.prompts else dialog_watch.DialogHint(session_id))
    about = await client.get_session(session_id) if client.supports("session_info") else None

    def show(event: PushEvent) -> None:
        if job.form is OutputFormat.JSONL:
            output.write_line(event.line)
        view.print_event(event)
        standing.on_event(event)
        asking.on_event(event)
        watch.on_event(event)
        if about is not None and isinstance(event.payload, messages.SessionStarted):
            _print_session_summary(about, chosen_by_us=job.provider == AUTO and job.can_use_demo)

    def decide(approval: messages.ApprovalRequired) -> messages.ApprovalDecision | None:
        if job.approved.always:
            return "approve"
        if job.prompts:
            asking.ask(approval)
            return None
        return "deny"

    if about is not None and job.attach is not None:
        _print_session_summary(about, chosen_by_us=False)
    try:
        return await through.watch_run(
            client, session, run_id, show=show, decide=decide, interrupted=interrupted, timeout=job.timeout
        )
    finally:
        view.end()
        await asker.close()


def _print_session_summary(about: extensions.SessionInfo, *, chosen_by_us: bool) -> None:
    """Who answers, and what it may do."""
    model = f"{about.provider} {about.model}" if about.model else about.provider
    preset = f"preset {about.preset}, " if about.preset else ""
    console.print_line(f"{preset}model {model}, policy {about.policy}, sandbox {about.sandbox}", "dim")
    if about.worktreeOf is not None:
        console.print_line(f"worktree {about.rootPath} (branch {about.branch})", "dim")
    if chosen_by_us and about.provider == DEMO:
        console.print_line("no model is configured, so the demo model answers; hint: see `tower models`", "yellow")
